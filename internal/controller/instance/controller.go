package instance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	"github.com/windows-nodes/wmco/internal/lifecycle"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// defaultDrainTimeout stands where no WindowsMachineConfig says otherwise; it is the CRD's default, too.
	defaultDrainTimeout = 10 * time.Minute
	// budgetRetry is a safety net for a node that may not be disturbed yet: its turn is an event.
	budgetRetry = time.Minute
	// pausedRetry is a safety net: unpausing is an event.
	pausedRetry = time.Hour
)

// Reconciler walks one instance at a time through its phases; many instances go in parallel.
type Reconciler struct {
	client client.Client
	walker *lifecycle.Walker
	events events.EventRecorder
	meters *meters
	now    func() time.Time
	jitter func() float64

	mu    sync.Mutex
	lives map[types.UID]*life
	// disrupted are the nodes that were let go ahead to another version and have not arrived there; waiters are the instances whose turn
	// comes when one of them has, first come first.
	disrupted map[string]bool
	waiters   []types.UID
	// woken has instances reconciled.
	woken chan event.GenericEvent
}

// life is what is kept of an instance between reconciles. The leader is the only writer of a status, so what it wrote last is truer than
// a cache that may lag behind; after a restart the API server has it.
type life struct {
	key    types.NamespacedName
	visit  lifecycle.Visit
	status *v1alpha1.WindowsInstanceStatus
	// failedIn is the phase in which the last attempt failed. Its reason stays on show until an attempt gets past that phase.
	failedIn v1alpha1.Phase
}

// Reconcile brings one instance a step further.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	instance := &v1alpha1.WindowsInstance{}
	if err := r.client.Get(ctx, request.NamespacedName, instance); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	life := r.life(instance)
	before := instance.DeepCopy()
	if life.status != nil {
		life.status.DeepCopyInto(&instance.Status)
	}
	w := &walk{Reconciler: r, instance: instance, life: life, saved: before}
	if life.status != nil {
		w.saved.Status = *life.status.DeepCopy()
	}
	if !instance.DeletionTimestamp.IsZero() {
		return w.leave(ctx)
	}
	if controllerutil.AddFinalizer(instance, contract.InstanceFinalizer) {
		if err := r.client.Patch(ctx, instance, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, fmt.Errorf("adding the finalizer: %w", err)
		}
		if life.status != nil {
			life.status.DeepCopyInto(&instance.Status)
		}
		w.saved = instance.DeepCopy()
	}
	return w.proceed(ctx)
}

// life finds or begins what is kept of an instance.
func (r *Reconciler) life(instance *v1alpha1.WindowsInstance) *life {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, ok := r.lives[instance.UID]
	if !ok {
		found = &life{key: client.ObjectKeyFromObject(instance)}
		r.lives[instance.UID] = found
		r.walker.Remember(instance)
	}
	return found
}

// end forgets an instance that is gone.
func (r *Reconciler) end(instance *v1alpha1.WindowsInstance) {
	r.mu.Lock()
	delete(r.lives, instance.UID)
	delete(r.disrupted, instance.Status.NodeName)
	r.stopWaiting(instance.UID)
	r.mu.Unlock()
	r.walker.Slots.Release(instance.UID)
	r.walker.Claims.Forget(instance.UID)
}

// walk is one reconcile of one instance.
type walk struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	life     *life
	// saved is the instance as the API server has it.
	saved *v1alpha1.WindowsInstance
}

// proceed decides what an instance that stays needs.
func (w *walk) proceed(ctx context.Context) (ctrl.Result, error) {
	status := &w.instance.Status
	changed := status.ObservedGeneration != w.instance.Generation
	status.ObservedGeneration = w.instance.Generation
	switch {
	case w.instance.Spec.Paused:
		w.life.visit.End()
		w.walker.Slots.Release(w.instance.UID)
		w.report(lifecycle.Wait(pausedRetry, contract.ReasonPaused, "spec.paused is true"))
		return w.result(ctx, pausedRetry)
	case status.Phase == v1alpha1.PhaseReady:
		return w.keep(ctx)
	case changed:
		status.NextAttemptTime = nil // the user has changed something: try at once
	}
	if next := status.NextAttemptTime; next != nil {
		if wait := next.Sub(w.now()); wait > 0 {
			return w.result(ctx, wait)
		}
	}
	status.NextAttemptTime = nil
	return w.join(ctx)
}

// join walks the phases until one waits or fails.
func (w *walk) join(ctx context.Context) (ctrl.Result, error) {
	phases := w.walker.Join()
	for i := w.walker.Resume(w.instance.Status.Phase, &w.life.visit); i < len(phases); i++ {
		w.enter(phases[i].Name, i == 0)
		if err := w.save(ctx); err != nil {
			return ctrl.Result{}, err
		}
		outcome := phases[i].Run(ctx, w.instance, &w.life.visit)
		switch {
		case outcome.IsFailed():
			return w.failed(ctx, outcome)
		case outcome.IsWaiting():
			w.report(outcome)
			return w.result(ctx, outcome.After)
		}
		w.passed(phases[i].Name)
	}
	w.ready(ctx)
	return w.result(ctx, 0)
}

// failed ends an attempt and says when the next one is.
func (w *walk) failed(ctx context.Context, outcome lifecycle.Outcome) (ctrl.Result, error) {
	if ctx.Err() != nil {
		return ctrl.Result{}, ctx.Err() // we are stopping: that is no failure of the host
	}
	w.life.visit.End()
	w.walker.Slots.Release(w.instance.UID)
	status := &w.instance.Status
	status.Failures++
	w.life.failedIn = status.Phase
	wait := policy.Backoff(status.Failures, w.jitter())
	next := microless(w.now().Add(wait))
	status.NextAttemptTime = &next
	w.report(outcome)
	w.events.Eventf(w.instance, nil, corev1.EventTypeWarning, eventSetupFailure, string(status.Phase), "%s", note(outcome.Problem))
	w.meters.failures.WithLabelValues(string(status.Phase), string(outcome.Problem.Reason)).Inc()
	logf.FromContext(ctx).Info("attempt failed", "phase", status.Phase, "reason", outcome.Problem.Reason, "detail", outcome.Problem.Detail, "failures", status.Failures, "retryIn", wait.String())
	return w.result(ctx, wait)
}

// keep looks after a host that has joined. In the steady state it reads the Node from the cache and writes nothing.
func (w *walk) keep(ctx context.Context) (ctrl.Result, error) {
	care, err := w.walker.Keep(ctx, w.instance)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case care.Rejoin != nil:
		logf.FromContext(ctx).Info("joining again", "reason", care.Rejoin.Reason, "detail", care.Rejoin.Detail)
		w.instance.Status.Phase = v1alpha1.PhasePending
		w.report(lifecycle.Wait(0, care.Rejoin.Reason, "%s", care.Rejoin.Detail))
		return w.join(ctx)
	case care.Update != nil:
		return w.update(ctx, care)
	}
	if care.Outcome.IsDone() {
		w.arrived(w.instance.Status.NodeName)
	}
	w.report(care.Outcome)
	return w.result(ctx, care.Outcome.After)
}

// arrived gives back a place in the rollout budget, if the node had one, and lets the next instance that waits ask again.
func (r *Reconciler) arrived(node string) {
	r.mu.Lock()
	delete(r.disrupted, node)
	var next types.UID
	if len(r.waiters) > 0 {
		next = r.waiters[0]
		r.waiters = r.waiters[1:]
	}
	r.mu.Unlock()
	if next != "" {
		r.wake(next)
	}
}

// stopWaiting takes an instance out of the queue. r.mu is held.
func (r *Reconciler) stopWaiting(id types.UID) {
	r.waiters = slices.DeleteFunc(r.waiters, func(waiter types.UID) bool { return waiter == id })
}

// update takes a host to another version as soon as it may.
func (w *walk) update(ctx context.Context, care lifecycle.Care) (ctrl.Result, error) {
	if care.Update.Disruptive {
		verdict, err := w.mayDisrupt(ctx, care.Node)
		if err != nil {
			return ctrl.Result{}, err
		}
		if !verdict.Allowed {
			logf.FromContext(ctx).V(1).Info("update waits", "version", care.Update.Version, "why", verdict.Why)
			w.report(care.Outcome)
			return w.result(ctx, budgetRetry)
		}
		logf.FromContext(ctx).Info("updating", "version", care.Update.Version, "overSSH", care.Update.Walk, "why", verdict.Why)
	}
	if care.Update.Walk {
		w.instance.Status.Phase = v1alpha1.PhasePending
		return w.join(ctx)
	}
	if err := w.walker.Move(ctx, w.instance, care.Node, care.Update.Version); err != nil {
		return ctrl.Result{}, err
	}
	w.report(lifecycle.Wait(0, contract.ReasonVersionPending, "the daemon of node %s goes to version %s", care.Node.Name, care.Update.Version))
	return w.result(ctx, 0)
}

// mayDisrupt decides over a view that holds what this process has allowed, so that two hosts never take the last place at once.
func (w *walk) mayDisrupt(ctx context.Context, node *corev1.Node) (policy.Verdict, error) {
	config, err := w.config(ctx)
	if err != nil {
		return policy.Verdict{}, err
	}
	nodes, instances := &corev1.NodeList{}, &v1alpha1.WindowsInstanceList{}
	if err = w.client.List(ctx, nodes, client.MatchingLabels{contract.OSIDLabel: contract.OSIDWindows}); err != nil {
		return policy.Verdict{}, fmt.Errorf("listing nodes: %w", err)
	}
	if err = w.client.List(ctx, instances, client.InNamespace(w.instance.Namespace)); err != nil {
		return policy.Verdict{}, fmt.Errorf("listing instances: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	busy := map[string]bool{}
	maps.Copy(busy, w.disrupted)
	for i := range instances.Items {
		if s := &instances.Items[i].Status; s.NodeName != "" && s.JoinedTime != nil && s.Phase != v1alpha1.PhaseReady {
			busy[s.NodeName] = true
		}
	}
	delete(busy, node.Name) // it does not wait for itself
	verdict := policy.MayDisrupt(node, nodes.Items, busy, config.Spec.Rollout.MaxUnavailable)
	w.stopWaiting(w.instance.UID)
	if verdict.Allowed {
		w.disrupted[node.Name] = true
	} else {
		w.waiters = append(w.waiters, w.instance.UID)
	}
	return verdict, nil
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

// leave gives the host back, then lets the instance go.
func (w *walk) leave(ctx context.Context) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(w.instance, contract.InstanceFinalizer) {
		w.life.visit.End()
		w.end(w.instance)
		return ctrl.Result{}, nil
	}
	status := &w.instance.Status
	force := w.instance.Spec.RemovalPolicy == v1alpha1.RemovalForce
	if w.instance.Spec.Paused && !force {
		w.report(lifecycle.Wait(pausedRetry, contract.ReasonPaused, "spec.paused is true, and the instance is to be removed"))
		return w.result(ctx, pausedRetry)
	}
	if status.Phase != v1alpha1.PhaseRemoving {
		w.life.visit.End()
		w.walker.Slots.Release(w.instance.UID)
		status.Failures, status.NextAttemptTime = 0, nil
		w.enter(v1alpha1.PhaseRemoving, true)
		w.report(lifecycle.Wait(0, contract.ReasonInProgress, "leaving"))
		if err := w.save(ctx); err != nil {
			return ctrl.Result{}, err
		}
	}
	if next := status.NextAttemptTime; next != nil && !force {
		if wait := next.Sub(w.now()); wait > 0 {
			return w.result(ctx, wait)
		}
	}
	config, err := w.config(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	timeout := defaultDrainTimeout
	if config.Spec.Rollout.DrainTimeout != nil {
		timeout = config.Spec.Rollout.DrainTimeout.Duration
	}
	outcome := w.walker.Leave(ctx, w.instance, &w.life.visit, timeout)
	switch {
	case outcome.IsFailed():
		return w.failed(ctx, outcome)
	case outcome.IsWaiting():
		w.report(outcome)
		return w.result(ctx, outcome.After)
	}
	return w.gone(ctx, force)
}

// gone lets the instance go: its status, and with it the pinned host key, is forgotten.
func (w *walk) gone(ctx context.Context, force bool) (ctrl.Result, error) {
	without := w.instance.DeepCopy()
	controllerutil.RemoveFinalizer(without, contract.InstanceFinalizer)
	if err := w.client.Patch(ctx, without, client.MergeFrom(w.instance)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("removing the finalizer: %w", err)
	}
	w.passed(v1alpha1.PhaseRemoving)
	w.tellTeardown(force)
	w.end(w.instance)
	logf.FromContext(ctx).Info("instance removed", "address", w.instance.Spec.Address, "node", w.instance.Status.NodeName, "forced", force)
	return ctrl.Result{}, nil
}
