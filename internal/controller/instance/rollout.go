package instance

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	node, serves, err := c.parts.InService(ctx, c.instance)
	if err != nil || !serves {
		return free, err
	}
	return c.takePlace(ctx, node, v1alpha1.DisruptionUpdate, upgrade.RevisionToTry(&c.instance.Status, node),
		func() { c.journeys.upgrade.Granted(&c.instance.Status) })
}

// takePlace asks for a place in the rollout budget. The place is in the list of all places, and then in
// the instance's status, before anything is done with it. granted notes what begins with it, in the
// same write. revision is where the node goes, if that may be halted.
func (c *reconciliation) takePlace(ctx context.Context, node *corev1.Node, purpose v1alpha1.DisruptionPurpose,
	revision string, granted func()) (policy.Verdict, error) {
	if c.instance.Status.Disruption != nil {
		return policy.Verdict{Allowed: true, Why: "it has its place already"}, nil
	}
	if c.record.saved.Status.Disruption != nil { // or it would pass for who goes ahead in the place that it gave back
		if err := c.record.save(ctx); err != nil {
			return policy.Verdict{}, err
		}
	}
	var verdict policy.Verdict
	var seen policy.Fleet
	shown := &v1alpha1.WindowsInstance{}
	has, err := c.gate.Ask(ctx, rollout.Question{
		Name: c.life.name(), Node: node.Name, Order: order(c.instance, node),
		Wake: func() { c.wake(c.instance.UID) },
		Decide: func(look rollout.Look) bool {
			shown, seen = look.Instances[c.instance.Name], look.Fleet
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
	})
	if problem, ok := contract.AsProblem(err); ok {
		verdict, err = policy.Verdict{Reason: problem.Reason, Why: problem.Detail}, nil
	}
	if has && verdict.IsLost {
		err = c.confirmLost(ctx, node.Name, shown, seen)
	}
	if has && err == nil {
		err = c.usePlace(ctx, shown, purpose, granted)
	}
	verdict.Allowed = has && err == nil
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

// confirmLost gives a place back that was given out because the node's pods were lost, if it has come back since the
// fleet was read, by itself or by another operator: its instance does not show that. Between this read and the write of
// the place it still may.
func (c *reconciliation) confirmLost(ctx context.Context, node string, shown *v1alpha1.WindowsInstance,
	seen policy.Fleet) error {
	if shown == nil {
		return nil // usePlace finds its place void
	}
	live, err := c.parts.Nodes.Live(ctx, node)
	if err != nil {
		return c.returnPlace(ctx, shown, err)
	}
	if seen.With(node, live, shown).IsLost(node) {
		return nil
	}
	return c.returnPlace(ctx, shown, conflict(c.instance))
}

// returnPlace gives a place back that is certainly not used, and has the instance read past the cache. The answer is
// why it is not used, with what failed meanwhile.
func (c *reconciliation) returnPlace(ctx context.Context, shown *v1alpha1.WindowsInstance, why error) error {
	c.life.conflicted = true
	if failed := c.gate.Return(ctx, shown.DeepCopy()); !apierrors.IsConflict(failed) { // void by another's write
		why = errors.Join(why, failed)
	}
	return why
}

// usePlace writes down that the place is used that was given out under the version that was shown, or
// gives it back. A write of which nobody knows whether it arrived leaves it taken until that can be
// seen. An instance that is not what was shown is read again, and finds its place then.
func (c *reconciliation) usePlace(ctx context.Context, shown *v1alpha1.WindowsInstance,
	purpose v1alpha1.DisruptionPurpose, granted func()) error {
	if shown == nil || shown.ResourceVersion != c.record.version() {
		c.life.conflicted = true
		c.gate.Freed() // the place is void, or found again
		return conflict(c.instance)
	}
	ctx, cancel := context.WithTimeout(ctx, rollout.UseTimeout)
	defer cancel()
	err := c.record.saveOrRevert(ctx, func() {
		c.instance.Status.Disruption = &v1alpha1.Disruption{Purpose: purpose, Since: journey.Seconds(c.now())}
		granted()
	})
	if rollout.IsRefused(err) {
		return c.returnPlace(ctx, shown, err)
	}
	return err
}

// conflict says that an instance is not what a decision about it was shown.
func conflict(instance *v1alpha1.WindowsInstance) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "windowsinstances"}, instance.Name,
		errors.New("it is another by now"))
}

// releasePlace gives back the place in the rollout budget, if the instance had one. It is free once
// the status is saved.
func (c *reconciliation) releasePlace() {
	c.instance.Status.Disruption, c.instance.Status.DrainTime = nil, nil
	c.gate.Leave(c.life.name())
}
