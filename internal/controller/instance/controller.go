package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/health"
	"github.com/windows-nodes/wmco/internal/instance/join"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/instance/reboot"
	"github.com/windows-nodes/wmco/internal/instance/remove"
	"github.com/windows-nodes/wmco/internal/instance/upgrade"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
)

const (
	// budgetRetry is a safety net for a node that may not be disturbed yet: its turn is an event.
	budgetRetry = time.Minute
	// pausedRetry is a safety net: unpausing is an event.
	pausedRetry = time.Hour
	// staleRetry is for a write that met a newer object: the cache has it within milliseconds.
	staleRetry = 200 * time.Millisecond
)

// Reconciler walks one instance at a time through its phases; many instances go in parallel.
type Reconciler struct {
	client   client.Client
	parts    *journey.Parts
	journeys journeys
	gate     *rollout.Gate
	events   events.EventRecorder
	meters   *meters
	// trials bound how many hosts are asked at once about a new key.
	trials *journey.Slots
	now    func() time.Time
	jitter func() float64

	mu    sync.Mutex
	lives map[types.UID]*life
	// led is since when it is known again what instances had claimed before a restart, and they are
	// looked after.
	led time.Time
	// notes bound how many statuses are written at once that only say that a node has followed.
	notes *semaphore.Weighted
	// woken has instances reconciled.
	woken chan event.GenericEvent
}

// journeys are the five that a host may be on.
type journeys struct {
	join    join.Join
	upgrade upgrade.Upgrade
	reboot  reboot.Reboot
	remove  remove.Remove
	health  health.Health
}

func newJourneys(parts *journey.Parts) journeys {
	return journeys{join.Join{Parts: parts}, upgrade.Upgrade{Parts: parts}, reboot.Reboot{Parts: parts},
		remove.Remove{Parts: parts}, health.Health{Parts: parts}}
}

// errGone says that the instance vanished while it was worked on.
var errGone = errors.New("the instance is gone")

// Reconcile brings one instance a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if err := r.recall(ctx); err != nil {
		return ctrl.Result{}, err
	}
	instance := &v1alpha1.WindowsInstance{}
	err := r.client.Get(ctx, request.NamespacedName, instance)
	if apierrors.IsNotFound(err) {
		r.forget(request.NamespacedName, "")
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the instance: %w", err)
	}
	life := r.life(instance)
	if life.gone {
		return ctrl.Result{}, nil // the cache has yet to see it
	}
	w := &walk{Reconciler: r, instance: instance, life: life, saved: instance.DeepCopy()}
	w.overlay()
	result, err := w.step(ctx)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil // the cache has the newer object soon
	}
	if errors.Is(err, errGone) {
		logf.FromContext(ctx).Info("instance vanished without leaving; its host was not cleaned", "address",
			instance.Spec.Address)
		r.end(life)
		return ctrl.Result{}, nil
	}
	return result, err
}

// walk is one reconcile of one instance.
type walk struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	life     *life
	// saved is the instance as the API server has it.
	saved *v1alpha1.WindowsInstance
}

// step leaves or proceeds; an instance that proceeds has our finalizer first.
func (w *walk) step(ctx context.Context) (ctrl.Result, error) {
	if !w.instance.DeletionTimestamp.IsZero() {
		return w.leave(ctx)
	}
	if !controllerutil.ContainsFinalizer(w.instance, contract.InstanceFinalizer) {
		with := w.saved.DeepCopy()
		controllerutil.AddFinalizer(with, contract.InstanceFinalizer)
		if err := w.client.Patch(ctx, with,
			client.MergeFromWithOptions(w.saved, client.MergeFromWithOptimisticLock{})); err != nil {
			return ctrl.Result{}, fmt.Errorf("adding the finalizer: %w", vanished(err))
		}
		w.instance, w.saved = with, with.DeepCopy()
		w.overlay()
	}
	return w.proceed(ctx)
}

// proceed decides what an instance that stays needs.
func (w *walk) proceed(ctx context.Context) (ctrl.Result, error) {
	status := &w.instance.Status
	changed := status.ObservedGeneration != w.instance.Generation
	status.ObservedGeneration = w.instance.Generation
	if changed { // the user has changed something: try at once
		atOnce(status)
	}
	if keyRequested(w.instance) {
		status.KeyTrial.NextTime, status.NextAttemptTime = nil, nil
	}
	switch {
	case w.instance.Spec.Paused:
		w.stand()
		// whoever works at a host may have ended its daemon, and has the time to start it again
		status.SilentSince = nil
		w.report(ctx, journey.Wait(pausedRetry, contract.ReasonPaused, "spec.paused is true"))
		return w.result(ctx, pausedRetry)
	case status.Phase == v1alpha1.PhaseReady, status.Phase == v1alpha1.PhaseUpdating,
		status.Phase == v1alpha1.PhaseRebooting:
		return w.keep(ctx)
	case changed:
		status.NextAttemptTime = nil // the user has changed something: try at once
	}
	if wait := w.untilNextAttempt(); wait > 0 {
		return w.result(ctx, wait)
	}
	return w.join(ctx)
}

// atOnce has everything tried now that waits for its next try.
func atOnce(status *v1alpha1.WindowsInstanceStatus) {
	if status.KeyTrial != nil {
		status.KeyTrial.NextTime = nil
	}
	if status.Update != nil {
		status.Update.NextTime = nil
	}
	if status.Reboot != nil {
		status.Reboot.NextTime = nil
	}
}

// untilNextAttempt is how long a failed attempt still has to wait; when it is over, the time is
// cleared.
func (w *walk) untilNextAttempt() time.Duration {
	status := &w.instance.Status
	if next := status.NextAttemptTime; next != nil {
		if wait := next.Sub(w.now()); wait > 0 {
			return wait
		}
	}
	status.NextAttemptTime = nil
	return 0
}

// stand ends what is under way at the host, and gives back the places that it took.
func (w *walk) stand() {
	w.life.session.End()
	w.parts.Slots.Release(w.instance.UID)
	w.arrived()
}

// join walks the phases until one waits or fails.
func (w *walk) join(ctx context.Context) (ctrl.Result, error) {
	if !w.isHalfway() {
		if well, err := w.wellMeanwhile(ctx); err != nil || well {
			if err != nil {
				return ctrl.Result{}, err
			}
			return w.keep(ctx)
		}
	}
	verdict, err := w.mayWalk(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !verdict.Allowed {
		w.life.session.End()
		w.parts.Slots.Release(w.instance.UID) // others may have its slot, too
		w.serveOn()
		w.report(ctx, w.waiting(ctx, verdict))
		return w.result(ctx, budgetRetry)
	}
	phases := w.journeys.join.Phases()
	work, ended := w.interruptible(ctx, w.life)
	defer ended()
	for i := w.journeys.join.Resume(ctx, w.instance, &w.life.session); i < len(phases); i++ {
		w.enter(phases[i].Name, i == 0)
		if err := w.save(ctx); err != nil {
			return ctrl.Result{}, err
		}
		outcome := phases[i].Run(work, w.instance, &w.life.session)
		switch {
		case errors.Is(context.Cause(work), errLeaving):
			w.stand()
			return w.result(ctx, 0) // its deletion is an event that is waiting already
		case outcome.IsFailed():
			return w.failed(ctx, outcome)
		case outcome.IsWaiting():
			w.life.failedIn = "" // what it waits for is the newer word
			if outcome.Endless {
				w.arrived()
			}
			w.report(ctx, outcome)
			return w.result(ctx, outcome.After)
		}
		w.passed(phases[i].Name)
	}
	if update := w.instance.Status.Update; update != nil && update.Step == v1alpha1.StepGoingBack {
		return w.backOverSSH(ctx)
	}
	w.ready(ctx)
	return w.result(ctx, 0)
}

// isHalfway reports whether the host has replaced kubelet's and the daemon's keys, or is about to: then
// the attempt ends first, or the daemon could not report any more. One that failed is judged anew.
func (w *walk) isHalfway() bool {
	status := &w.instance.Status
	return w.life.session.HasReplacedKey() || len(status.BootstrapCredentials) > 0 && status.Failures == 0
}

// serveOn has a host looked after as one whose node serves while it waits for its turn.
func (w *walk) serveOn() {
	status := &w.instance.Status
	status.Phase, w.life.failedIn = v1alpha1.PhaseReady, ""
	status.BootstrapCredentials = nil // nobody waits for what is requested with them
	if update := status.Update; update != nil && update.OverSSH && update.Step == v1alpha1.StepSwitching {
		update.Step, update.Since = v1alpha1.StepWaiting, microless(w.now())
	}
}

// failedAt notes a version that a host failed at over SSH, and turns it back to the one that it
// held. What lies with the host, the network or the cluster is no version's failure.
func (w *walk) failedAt(ctx context.Context, problem *contract.Problem) {
	status := &w.instance.Status
	version, held := status.DesiredRevision, status.HeldRevision
	switch update := status.Update; {
	case update != nil && update.OverSSH && update.Step == v1alpha1.StepSwitching:
		version = update.Revision
	case problem.Reason == contract.ReasonDaemonSilent:
		return // it was so before, at whatever version
	}
	if !w.instance.DeletionTimestamp.IsZero() || status.JoinedTime == nil || held == "" || version == held ||
		!policy.BlamesRevision(problem.Reason) {
		return
	}
	logf.FromContext(ctx).Info("going back", "version", version, "from", held, "reason", problem.Reason)
	now := microless(w.now())
	tries := int32(0)
	if status.Update != nil {
		tries = status.Update.Tries
	}
	status.UpdateFailure = &v1alpha1.UpdateFailure{Revision: version, Code: code(problem.Reason),
		Message: problem.Detail, Time: now}
	status.Update = &v1alpha1.Update{Revision: version, From: held, OverSSH: true,
		Reason: string(problem.Reason), Code: code(problem.Reason),
		Message: problem.Detail, Progress: v1alpha1.Progress{Step: v1alpha1.StepGoingBack, Since: now, Tries: tries}}
	status.DesiredRevision = held
	w.tellBack(ctx, v1alpha1.DisruptionUpdate, problem)
}

// backOverSSH ends the way back of a host that was joined again at the version that it held.
func (w *walk) backOverSSH(ctx context.Context) (ctrl.Result, error) {
	status := &w.instance.Status
	failed := *status.Update
	w.ready(ctx)
	failed.Tries++
	wait := policy.DisruptBackoff(failed.Tries, w.jitter())
	next := microless(w.now().Add(wait))
	failed.Step, failed.Since, failed.NextTime = v1alpha1.StepWaiting, microless(w.now()), &next
	status.Update = &failed
	w.report(ctx, journey.Wait(wait, contract.ReasonUpdateFailed, "host is back at version %s, because at %s: %s",
		failed.From, failed.Revision, failed.Message))
	return w.result(ctx, wait)
}

// waiting is how a host is that may not be walked into yet.
func (w *walk) waiting(ctx context.Context, verdict policy.Verdict) journey.Outcome {
	if _, silent, err := w.journeys.health.Unresponsive(ctx, w.instance); err == nil && silent != nil {
		return journey.Wait(budgetRetry, silent.Reason, "%s; its host waits for the rollout budget: %s",
			silent.Detail, verdict.Why)
	}
	return journey.Wait(budgetRetry, contract.ReasonRevisionPending, "waits for the rollout budget: %s", verdict.Why)
}

// wellMeanwhile says that the node of a host that is being joined again needs that no more. It is
// then looked after again.
func (w *walk) wellMeanwhile(ctx context.Context) (bool, error) {
	status := &w.instance.Status
	if status.Disruption != nil || status.JoinedTime == nil {
		return false, nil
	}
	well, err := w.journeys.health.RecoversByItself(ctx, w.instance)
	if err != nil || !well {
		return false, err
	}
	w.serveOn()
	return true, nil
}

// failed ends an attempt and says when the next one is.
func (w *walk) failed(ctx context.Context, outcome journey.Outcome) (ctrl.Result, error) {
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err() // we are stopping: that is no failure of the host
	}
	w.stand()
	w.timed(w.instance.Status.Phase)
	status := &w.instance.Status
	w.failedAt(ctx, outcome.Problem)
	status.Failures++
	w.life.failedIn = status.Phase
	wait := policy.Backoff(status.Failures, w.jitter())
	next := microless(w.now().Add(wait))
	status.NextAttemptTime = &next
	w.report(ctx, outcome)
	if !policy.IsBooting(w.instance, outcome.Problem.Reason, w.now()) {
		w.tellFailure(ctx, outcome.Problem)
	}
	w.meters.failures.WithLabelValues(string(status.Phase), string(outcome.Problem.Reason)).Inc()
	logf.FromContext(ctx).Info("attempt failed", "phase", status.Phase, "reason", outcome.Problem.Reason, "detail",
		outcome.Problem.Detail, "failures", status.Failures, "retryIn", wait.String())
	return w.result(ctx, wait)
}

// keep looks after a host that has joined. In the steady state it reads the Node from the cache and
// writes nothing.
func (w *walk) keep(ctx context.Context) (ctrl.Result, error) {
	found, err := w.journeys.health.Check(ctx, w.instance)
	if err != nil {
		return ctrl.Result{}, err
	}
	w.skew(ctx)
	var wait time.Duration
	if proven := w.instance.Status.PublicKeyHash; found.Rejoin == nil {
		if wait = w.tryKey(ctx); w.instance.Status.PublicKeyHash != proven {
			if found, err = w.journeys.health.Check(ctx, w.instance); err != nil { // the Node shows it, too
				return ctrl.Result{}, err
			}
		}
	}
	switch {
	case found.Rejoin != nil:
		// which it may do for long
		if waits := w.instance.Status.Reason == string(contract.ReasonDaemonSilent); !waits {
			logf.FromContext(ctx).Info("joining again", "reason", found.Rejoin.Reason, "detail", found.Rejoin.Detail)
		}
		w.giveUp()
		w.report(ctx, journey.Wait(0, found.Rejoin.Reason, "%s", found.Rejoin.Detail))
		return w.join(ctx)
	case found.Rebooting, w.rebootsFirst(ctx, found):
		return w.reboot(ctx, found)
	case found.Updating || found.Update != nil:
		return w.across(ctx, found)
	case w.wantsReboot(ctx, found):
		return w.reboot(ctx, found)
	}
	if found.Outcome.IsDone() {
		w.arrived()
		w.instance.Status.Failures = 0
	}
	w.report(ctx, found.Outcome)
	w.sayKey(found.Outcome)
	found.Outcome.After = soonest(found.Outcome.After, wait)
	return w.await(ctx, found.Node, found.Outcome, promptly)
}

// giveUp ends what a host is on the way to that is to be joined again. It comes back at the version
// that it held, and a version that it was leaving stays left.
func (w *walk) giveUp() {
	status := &w.instance.Status
	if update := status.Update; update != nil && journey.Begun(update.Step) && update.From != "" {
		status.DesiredRevision = update.From
	}
	if update := status.Update; update == nil || update.Step != v1alpha1.StepGoingBack {
		status.Update = nil
	}
	status.Phase, status.Reboot = v1alpha1.PhasePending, nil
}

// config reads the settings; an absent object means the defaults.
func (r *Reconciler) config(ctx context.Context) (*v1alpha1.WindowsMachineConfig, error) {
	config := &v1alpha1.WindowsMachineConfig{}
	err := r.client.Get(ctx, types.NamespacedName{Name: contract.MachineConfigObject}, config)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	return config, nil
}
