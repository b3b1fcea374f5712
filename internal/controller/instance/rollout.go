package instance

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
)

// mayWalk decides whether a host may walk the way in. One that is a node needs a place in the
// rollout budget, also when an attempt failed; a host that can't be reached meanwhile keeps no
// place from others. One whose node has not been Ready for long loses nothing.
func (w *walk) mayWalk(ctx context.Context) (policy.Verdict, error) {
	free := policy.Verdict{Allowed: true, Why: "no pods are disturbed"}
	if w.instance.Status.Disruption != nil || w.instance.Status.JoinedTime == nil || w.life.session.HasReplacedKey() {
		return free, nil // what is left of a join whose keys are replaced disturbs no pods
	}
	node, err := w.parts.Nodes.Ours(ctx, w.instance)
	if err != nil || node == nil {
		return free, err
	}
	bounds, err := w.bounds(ctx)
	if err != nil || w.parts.IsOut(node, bounds) {
		return free, err
	}
	return w.mayDisrupt(ctx, node, v1alpha1.DisruptionUpdate)
}

// mayDisrupt asks for a place in the rollout budget. The place is in the instance's status before
// anything is done with it, so whoever decides next, here or after a restart, sees it.
func (w *walk) mayDisrupt(ctx context.Context, node *corev1.Node, purpose v1alpha1.DisruptionPurpose) (policy.Verdict,
	error) {
	if w.instance.Status.Disruption != nil {
		return policy.Verdict{Allowed: true, Why: "it has its place already"}, nil
	}
	version := ""
	if update := w.instance.Status.Update; update != nil && purpose == v1alpha1.DisruptionUpdate &&
		update.SwitchTime == nil && update.Step != v1alpha1.StepGoingBack &&
		node.Annotations[contract.DesiredRevisionAnnotation] != update.Revision {
		version = update.Revision
	}
	var verdict policy.Verdict
	acted, err := w.gate.Ask(ctx, rollout.Question{
		Name: w.waits(), Node: node.Name, Order: w.order(node), Fresh: w.itsTurn(), Wake: w.wakes(),
		Decide: func(look rollout.Look) bool {
			if verdict = look.MayDisrupt(node.Name); verdict.Allowed {
				if halted := look.Halted(version); halted != "" {
					verdict = policy.Verdict{Reason: contract.ReasonRolloutHalted, Why: halted}
				}
			}
			return verdict.Allowed
		},
		Act: func(ctx context.Context) error { return w.claim(ctx, purpose) },
	})
	verdict.Allowed = acted
	if verdict.Reason == contract.ReasonRolloutHalted || verdict.Reason == contract.ReasonMaintenanceWindowClosed {
		w.gate.Leave(w.waits()) // a place would be of no use
	}
	return verdict, err
}

// claim writes the place down. Unlike all else, what could not be written now must not be written
// later.
func (w *walk) claim(ctx context.Context, purpose v1alpha1.DisruptionPurpose) error {
	before := w.instance.Status.DeepCopy()
	w.instance.Status.Disruption = &v1alpha1.Disruption{Purpose: purpose, Since: microless(w.now())}
	w.claimed(ctx, purpose)
	err := w.save(ctx)
	if err != nil {
		w.instance.Status, w.life.status = *before, before.DeepCopy()
	}
	return err
}

// waits is the name by which the instance asks for a place.
func (w *walk) waits() string { return string(w.instance.UID) }

// order is the instance's among those who wait.
func (w *walk) order(node *corev1.Node) rollout.Order {
	ready, _ := journey.NodeReady(node)
	order := rollout.Order{Down: !ready, Failures: w.instance.Status.Failures, Since: w.instance.CreationTimestamp.Time,
		Name: w.instance.Name}
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

// itsTurn says whether the instance was woken because a place is free. The cache may not show that
// yet.
func (w *walk) itsTurn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	called := w.life.called
	w.life.called = false
	return called
}

// arrived gives back the place in the rollout budget, if the instance had one. It is free once the
// status is saved.
func (w *walk) arrived() {
	w.instance.Status.Disruption, w.instance.Status.DrainTime = nil, nil
	w.gate.Leave(w.waits())
}
