package instance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/instance/disrupt"
	"github.com/windows-nodes/wmco/internal/instance/health"
	"github.com/windows-nodes/wmco/internal/instance/join"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/instance/remove"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// budgetRetry is a safety net for a node that waits for its slot. Normally, an event triggers the next reconcile.
	budgetRetry = time.Minute
	// pausedRetry is a safety net for a paused host. Normally, an event triggers a reconcile when the pause ends.
	pausedRetry = time.Hour
)

// Reconciler reconciles many WindowsInstances in parallel, and takes one step at a time for each.
type Reconciler struct {
	client   client.Client
	parts    *journey.Parts
	journeys journeys
	rollout  *rollout.Rollout
	recorder recorder
	meters   *meters
	// trials limits the number of hosts on which a new key is tried at the same time.
	trials *journey.Slots
	now    func() time.Time
	jitter func() float64

	mu       sync.Mutex
	memories map[types.NamespacedName]*memory
	// notes limits concurrent writes of the status: see await.
	notes *semaphore.Weighted
	// woken receives instances that must be reconciled because a slot for a join or for a try of the key is free.
	woken chan event.GenericEvent
}

// journeys are the kinds of work that the controller can do for a host.
type journeys struct {
	join    join.Join
	disrupt disrupt.Disrupt
	remove  remove.Remove
	health  health.Health
}

func newJourneys(parts *journey.Parts) journeys {
	return journeys{join.Join{Parts: parts}, disrupt.Disrupt{Parts: parts}, remove.Remove{Parts: parts},
		health.Health{Parts: parts}}
}

// errGone means that the instance was deleted during this reconcile.
var errGone = errors.New("the instance is gone")

// Reconcile takes the next step for an instance.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	instance := &v1alpha1.WindowsInstance{}
	err := r.client.Get(ctx, request.NamespacedName, instance)
	if apierrors.IsNotFound(err) {
		r.forget(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the instance: %w", err)
	}
	kept := r.memory(instance)
	if kept.gone {
		return ctrl.Result{}, nil // the instance was deleted, but is still in the cache
	}
	var result ctrl.Result
	c, err := r.gather(ctx, instance, kept)
	if err == nil {
		result, err = c.step(ctx)
	}
	if c == nil || !c.isQueued { // this reconcile did not queue the host: drop its old queue entry
		r.trials.Release(request.NamespacedName)
	}
	switch {
	case errors.Is(err, errLags):
		return ctrl.Result{RequeueAfter: lagRetry}, nil
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: journey.ConflictRetry}, nil // the cache will soon contain the newer object
	case errors.Is(err, errGone):
		logf.FromContext(ctx).Info("instance vanished without leaving; its host was not cleaned", "address",
			instance.Spec.Address)
		r.end(kept)
		return ctrl.Result{}, nil
	}
	return result, err
}

type reconciliation struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	// node is the Node of this instance, or nil.
	node   *corev1.Node
	memory *memory
	// record saves the status in the API server. The field `status` changes the status only in memory.
	record record
	status reporter
	slot   slot
	// isQueued reports that the host is in the queue for a try of the key.
	isQueued bool
}

func newReconciliation(r *Reconciler, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	kept *memory) *reconciliation {
	saved := instance.DeepCopy()
	boundTimes(&instance.Status, r.now())
	c := &reconciliation{Reconciler: r, instance: instance, node: node, memory: kept,
		record: record{Reconciler: r, instance: instance, memory: kept, saved: saved},
		status: reporter{instance: instance, now: r.now, memory: kept, meters: r.meters}}
	c.slot = slot{Reconciler: r, instance: instance, record: &c.record}
	return c
}

func (c *reconciliation) step(ctx context.Context) (ctrl.Result, error) {
	if !c.instance.DeletionTimestamp.IsZero() {
		return leaving{c}.run(ctx)
	}
	if !controllerutil.ContainsFinalizer(c.instance, contract.InstanceFinalizer) {
		if err := c.addFinalizer(ctx); err != nil {
			return ctrl.Result{}, err
		}
	}
	status := &c.instance.Status
	c.observe()
	if status.Reason() == string(contract.ReasonPaused) && !c.instance.Spec.Paused {
		disrupt.Resumed(status, c.now())
	}
	if requested := c.instance.Annotations[contract.TryKeyAnnotation]; requested != c.memory.keyRequest {
		c.memory.keyRequest = requested
		c.memory.keyTrial.next, c.memory.isHurried = time.Time{}, true
	}
	switch {
	case c.instance.Spec.PreflightOnly:
		return checking{c}.run(ctx)
	case c.instance.Spec.Paused:
		c.stop()
		// If a user stopped the daemon during the pause, the daemon needs time to start: restart its time limit.
		c.parts.Daemons.Forget(c.instance)
		c.report(ctx, journey.Wait(pausedRetry, contract.ReasonPaused, "spec.paused is true"))
		return c.result(ctx, pausedRetry)
	case isLookedAfter(c.instance):
		return c.check(ctx)
	}
	if wait := c.untilNextAttempt(); wait > 0 {
		return c.result(ctx, wait)
	}
	return joining{c}.run(ctx)
}

func (c *reconciliation) addFinalizer(ctx context.Context) error {
	with := c.record.saved.DeepCopy()
	controllerutil.AddFinalizer(with, contract.InstanceFinalizer)
	if err := c.client.Patch(ctx, with,
		client.MergeFromWithOptions(c.record.saved, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer: %w", vanished(err))
	}
	with.DeepCopyInto(c.instance)
	c.record.saved = with
	c.memory.knows(with.ResourceVersion, c.now())
	return nil
}

// observe ends all pauses between attempts if the user has changed the spec. On a joined host, observe also makes the
// operator try the key again, because the change may concern the connection.
func (c *reconciliation) observe() {
	status := &c.instance.Status
	if observed(status) == c.instance.Generation {
		return
	}
	if progressing := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing); progressing != nil {
		progressing.ObservedGeneration = c.instance.Generation
	}
	c.memory.isHurried = true
	c.memory.keyTrial.next = time.Time{}
	if status.PublicKeyHash != "" && isLookedAfter(c.instance) {
		c.status.condition(v1alpha1.ConditionKeyAuthorized, metav1.ConditionUnknown, keyUntried,
			"the spec has changed, and the operator has not logged in since")
	}
	if status.Activity != nil {
		status.Activity.NextTime = nil
	}
}

// The function `observed` returns the generation of the spec that a status is based on.
func observed(status *v1alpha1.WindowsInstanceStatus) int64 {
	if progressing := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProgressing); progressing != nil {
		return progressing.ObservedGeneration
	}
	return 0
}

// untilNextAttempt returns the rest of the pause after a failed attempt. It ignores times that a wrong clock wrote.
func (c *reconciliation) untilNextAttempt() time.Duration {
	wait := policy.NextAttempt(c.instance).Sub(c.now())
	if c.memory.isHurried || wait < 0 || wait > policy.LongestBackoff+clockSkew {
		return 0
	}
	return wait
}

func (c *reconciliation) stop() {
	c.endWork()
	c.slot.release()
}

// endWork ends the work at the host, and releases the host's join slot, but not its slot in the rollout budget.
func (c *reconciliation) endWork() {
	c.memory.session.End()
	c.parts.Slots.Release(c.memory.key)
}

func (c *reconciliation) failed(ctx context.Context, outcome journey.Outcome) (ctrl.Result, error) {
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err() // the operator stops, so this is not the host's failure
	}
	c.stop()
	c.status.timed(c.instance.Status.Phase)
	status := &c.instance.Status
	c.recorder.record(ctx, c.instance, c.journeys.join.RevertToHeld(ctx, c.instance, outcome.Problem)...)
	status.Failures++
	c.memory.failedIn, c.memory.isHurried = status.Phase, false
	wait := c.untilNextAttempt()
	c.report(ctx, outcome)
	if !policy.IsBooting(c.instance, outcome.Problem.Reason, c.now()) {
		c.recorder.record(ctx, c.instance, failureEvent(status.Phase, outcome.Problem))
	}
	c.meters.failures.WithLabelValues(string(status.Phase), string(outcome.Problem.Reason)).Inc()
	logf.FromContext(ctx).Info("attempt failed", "phase", status.Phase, "reason", outcome.Problem.Reason, "detail",
		outcome.Problem.Detail, "failures", status.Failures, "retryIn", wait.String())
	return c.result(ctx, wait)
}

// check takes the next step for a joined host. If the host needs nothing, check only reads the Node from the cache.
func (c *reconciliation) check(ctx context.Context) (ctrl.Result, error) {
	found, err := c.look(ctx, c.node)
	if err != nil {
		return ctrl.Result{}, err
	}
	c.status.skew(c.journeys.health.Skew(ctx, c.instance))
	again, wait := c.status.workloads(c.parts.Misplaced(c.instance.Status.NodeName)), time.Duration(0)
	if proven := c.instance.Status.PublicKeyHash; found.Rejoin == nil {
		if wait = c.tryKey(ctx); c.instance.Status.PublicKeyHash != proven {
			if found, err = c.look(ctx, c.node); err != nil { // the new key must also be written to the Node
				return ctrl.Result{}, err
			}
		}
	}
	outcome, kind := found.Outcome, v1alpha1.ActivityKind("")
	outcome.After, outcome.Quiet = policy.Soonest(outcome.After, policy.Soonest(wait, again)), journey.QuietPeriod
	switch {
	case found.Rejoin != nil:
		// log only when the wait begins
		if waits := c.instance.Status.Reason() == string(contract.ReasonDaemonUnresponsive); !waits {
			logf.FromContext(ctx).Info("joining again", "reason", found.Rejoin.Reason, "detail", found.Rejoin.Detail)
		}
		join.ResetForRejoin(&c.instance.Status)
		c.report(ctx, journey.Wait(0, found.Rejoin.Reason, "%s", found.Rejoin.Detail))
		return joining{c}.run(ctx)
	case is(outcome, contract.ReasonNodeForeign), is(outcome, contract.ReasonLabelsRefused):
		c.slot.release() // the node can't use the slot until a user has fixed the problem
	case found.Rebooting, c.rebootsFirst(ctx, found):
		kind = v1alpha1.ActivityReboot
	case found.Updating || found.Update != nil:
		kind = v1alpha1.ActivityUpgrade
	case c.wantsReboot(ctx, found.Node):
		kind = v1alpha1.ActivityReboot
	case outcome.IsDone():
		c.slot.release()
		c.instance.Status.Failures = 0
	}
	if kind != "" {
		view, err := c.view(ctx, found)
		if err != nil {
			return ctrl.Result{}, err
		}
		after := outcome.After // when to check the node again, because it may go down, or its daemon may die
		if outcome, err = c.journeys.disrupt.Next(ctx, view, kind); err != nil {
			return ctrl.Result{}, err
		}
		c.Note(ctx, outcome)
		outcome.After = policy.Soonest(outcome.After, after)
	}
	switch {
	case outcome.Then == journey.JoinAgain:
		return joining{c}.run(ctx)
	case is(outcome, contract.ReasonRebootTimedOut) && c.isUp(ctx):
		return c.joinInstead(ctx, found.Node, outcome.Problem)
	case outcome.IsUnreported:
		return c.result(ctx, outcome.After)
	}
	c.report(ctx, outcome)
	c.status.sayKey(outcome)
	return c.await(ctx, found.Node, outcome)
}

// look returns the result of health.Check. Exception: if the daemon does not respond and the rollout of the desired
// revision is halted, the host must join again, at the revision that it has.
func (c *reconciliation) look(ctx context.Context, node *corev1.Node) (health.Finding, error) {
	found, err := c.journeys.health.Check(ctx, c.instance, node)
	if err != nil || found.Unresponsive == nil || found.Update == nil {
		return found, err
	}
	halted, err := c.halted(ctx, found.Update.Revision)
	if halted != "" {
		found.Rejoin = found.Unresponsive
	}
	return found, err
}

func is(outcome journey.Outcome, reason contract.Reason) bool {
	return outcome.Problem != nil && outcome.Problem.Reason == reason
}

func (r *Reconciler) config(ctx context.Context) (*v1alpha1.WindowsMachineConfig, error) {
	return cluster.Settings(ctx, r.client, r.parts.Namespace)
}
