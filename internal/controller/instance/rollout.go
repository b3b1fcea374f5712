package instance

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/instance/upgrade"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
)

// mayJoin decides whether a host may be joined. One that is a node needs a place in the
// rollout budget, also when an attempt failed; a host that can't be reached meanwhile keeps no
// place from others. One whose node has not been Ready for long loses nothing.
func (c *reconciliation) mayJoin(ctx context.Context) (policy.Verdict, error) {
	free := policy.Verdict{Allowed: true, Why: "no pods are disturbed"}
	if c.instance.Status.Disruption != nil || c.instance.Status.JoinedTime == nil || c.life.session.HasReplacedKey() {
		return free, nil // what is left of a join whose keys are replaced disturbs no pods
	}
	node, err := c.parts.Nodes.Ours(ctx, c.instance)
	if err != nil || node == nil {
		return free, err
	}
	bounds, err := c.bounds(ctx)
	if err != nil || c.parts.IsOut(node, bounds) {
		return free, err
	}
	return c.takePlace(ctx, node, v1alpha1.DisruptionUpdate, upgrade.RevisionToTry(&c.instance.Status, node),
		func() { c.journeys.upgrade.Granted(&c.instance.Status) })
}

// takePlace asks for a place in the rollout budget. The place is in the instance's status before
// anything is done with it, so whoever decides next, here or after a restart, sees it. granted notes
// what begins with it, in the same write. revision is where the node goes, if that may be halted.
func (c *reconciliation) takePlace(ctx context.Context, node *corev1.Node, purpose v1alpha1.DisruptionPurpose,
	revision string, granted func()) (policy.Verdict, error) {
	if c.instance.Status.Disruption != nil {
		return policy.Verdict{Allowed: true, Why: "it has its place already"}, nil
	}
	var verdict policy.Verdict
	acted, err := c.gate.Ask(ctx, rollout.Question{
		Name: c.life.name(), Node: node.Name, Order: order(c.instance, node), Fresh: c.isCalled(c.life),
		Wake: c.waker(c.life),
		Decide: func(look rollout.Look) bool {
			if purpose == v1alpha1.DisruptionRemove {
				verdict = look.MayRemove(node.Name)
				return verdict.Allowed
			}
			if verdict = look.MayDisrupt(node.Name); verdict.Allowed {
				if halted := look.Halted(revision); halted != "" {
					verdict = policy.Verdict{Reason: contract.ReasonRolloutHalted, Why: halted}
				}
			}
			return verdict.Allowed
		},
		Act: func(ctx context.Context) error {
			return c.record.saveOrRevert(ctx, func() {
				c.instance.Status.Disruption = &v1alpha1.Disruption{Purpose: purpose, Since: journey.Seconds(c.now())}
				granted()
			})
		},
	})
	verdict.Allowed = acted
	if verdict.Reason == contract.ReasonRolloutHalted || verdict.Reason == contract.ReasonMaintenanceWindowClosed {
		c.gate.Leave(c.life.name()) // a place would be of no use
	}
	return verdict, err
}

// order is the instance's among those who wait.
func order(instance *v1alpha1.WindowsInstance, node *corev1.Node) rollout.Order {
	ready, _ := journey.NodeReady(node)
	order := rollout.Order{Down: !ready, Failures: instance.Status.Failures, Since: instance.CreationTimestamp.Time,
		Name: instance.Name}
	if update := instance.Status.Update; update != nil {
		order.Failures += update.Tries
	}
	return order
}

// waker has the instance reconciled because there may be a place for it.
func (r *Reconciler) waker(one *life) func() {
	return func() {
		r.mu.Lock()
		one.called = true
		r.mu.Unlock()
		r.wake(one.uid)
	}
}

// isCalled says whether the instance was woken because a place is free. The cache may not show that
// yet.
func (r *Reconciler) isCalled(one *life) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	called := one.called
	one.called = false
	return called
}

// releasePlace gives back the place in the rollout budget, if the instance had one. It is free once
// the status is saved.
func (c *reconciliation) releasePlace() {
	c.instance.Status.Disruption, c.instance.Status.DrainTime = nil, nil
	c.gate.Leave(c.life.name())
}
