package instance

import (
	"context"

	corev1 "k8s.io/api/core/v1"
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
		Name: w.waits(), Node: node.Name, Order: w.order(node), Fresh: w.itsTurn(), Wake: w.wakes(),
		Decide: func(look rollout.Look) bool {
			verdict = look.MayDisrupt(node.Name)
			return verdict.Allowed
		},
		Act: func(ctx context.Context) error { return w.claim(ctx, v1alpha1.DisruptionUpdate) },
	})
	verdict.Allowed = acted
	return verdict, err
}

// claim writes the place down. Unlike all else, what could not be written now must not be written later.
func (w *walk) claim(ctx context.Context, purpose v1alpha1.DisruptionPurpose) error {
	w.instance.Status.Disruption = &v1alpha1.Disruption{Purpose: purpose, Since: microless(w.now())}
	err := w.save(ctx)
	if err != nil {
		w.instance.Status.Disruption, w.life.status.Disruption = nil, nil
	}
	return err
}

// waits is the name by which the instance asks for a place.
func (w *walk) waits() string { return string(w.instance.UID) }

// order is the instance's among those who wait.
func (w *walk) order(node *corev1.Node) rollout.Order {
	ready, _ := lifecycle.NodeReady(node)
	order := rollout.Order{Down: !ready, Failures: w.instance.Status.Failures, Since: w.instance.CreationTimestamp.Time, Name: w.instance.Name}
	if update := w.instance.Status.Update; update != nil {
		order.Failures += update.Tries
	}
	return order
}

// wakes has the instance reconciled because there may be a place for it.
func (w *walk) wakes() func() {
	r, id := w.Reconciler, w.instance.UID
	return func() {
		r.mu.Lock()
		if one, ok := r.lives[id]; ok {
			one.called = true
		}
		r.mu.Unlock()
		r.wake(id)
	}
}

// itsTurn says whether the instance was woken because a place is free. The cache may not show that yet.
func (w *walk) itsTurn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	called := w.life.called
	w.life.called = false
	return called
}

// arrived gives back the place in the rollout budget, if the instance had one. It is free once the status is saved.
func (w *walk) arrived() { w.instance.Status.Disruption = nil }
