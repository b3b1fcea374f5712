package instance

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/lifecycle"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
)

// update takes a host to another version as soon as it may.
func (w *walk) update(ctx context.Context, care lifecycle.Care) (ctrl.Result, error) {
	if care.Update.Disruptive {
		verdict, err := w.mayDisrupt(ctx, care.Node)
		if err != nil {
			return ctrl.Result{}, err
		}
		if !verdict.Allowed {
			logf.FromContext(ctx).V(1).Info("update waits", "version", care.Update.Version, "why", verdict.Why)
			w.report(ctx, care.Outcome)
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
	w.report(ctx, lifecycle.Wait(0, contract.ReasonVersionPending, "the daemon of node %s goes to version %s", care.Node.Name, care.Update.Version))
	return w.result(ctx, 0)
}

// mayWalk decides whether a host may walk the way in. One whose node serves needs a place in the rollout budget, also when an attempt
// failed; and a host that can't be reached while its node serves keeps no place from others.
func (w *walk) mayWalk(ctx context.Context) (policy.Verdict, error) {
	free := policy.Verdict{Allowed: true, Why: "no pods are disturbed"}
	if w.instance.Status.Disruption != nil {
		return free, nil
	}
	node, err := w.walker.Serving(ctx, w.instance)
	if err != nil || node == nil {
		return free, err
	}
	return w.mayDisrupt(ctx, node)
}

// mayDisrupt asks for a place in the rollout budget. The place is in the instance's status before anything is done with it, so whoever
// decides next, here or after a restart, sees it.
func (w *walk) mayDisrupt(ctx context.Context, node *corev1.Node) (policy.Verdict, error) {
	if w.instance.Status.Disruption != nil {
		return policy.Verdict{Allowed: true, Why: "it has its place already"}, nil
	}
	var verdict policy.Verdict
	acted, err := w.gate.Ask(ctx, rollout.Question{
		Fresh: w.itsTurn(),
		Decide: func(look rollout.Look) bool {
			verdict = policy.MayDisrupt(node.Name, look.Fleet, look.MaxUnavailable)
			return verdict.Allowed
		},
		Act: func(ctx context.Context) error {
			w.instance.Status.Disruption = &v1alpha1.Disruption{Purpose: v1alpha1.DisruptionUpdate, Since: microless(w.now())}
			err := w.save(ctx)
			if err != nil { // unlike all else that could not be written, it must not be written later
				w.instance.Status.Disruption, w.life.status.Disruption = nil, nil
			}
			return err
		},
	})
	verdict.Allowed = acted
	if err == nil && !acted {
		w.queue()
	}
	return verdict, err
}

// itsTurn says whether the instance was woken because a place is free. The cache may not show that yet.
func (w *walk) itsTurn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	called := w.life.called
	w.life.called = false
	return called
}

// queue has the instance woken when a place is given back.
func (w *walk) queue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopWaiting(w.instance.UID)
	w.waiters = append(w.waiters, w.instance.UID)
}

// arrived gives back the place in the rollout budget, if the instance had one. It is free once the status is saved.
func (w *walk) arrived() { w.instance.Status.Disruption = nil }

// next wakes the first one that waits for a place in the rollout budget.
func (r *Reconciler) next() {
	r.mu.Lock()
	var next types.UID
	if len(r.waiters) > 0 {
		next = r.waiters[0]
		r.waiters = r.waiters[1:]
		if one, ok := r.lives[next]; ok {
			one.called = true
		}
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
