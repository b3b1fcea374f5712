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
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
)

// place is an instance's place in the rollout budget, taken or not.
type place struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	life     *life
	record   *record
	// wasGranted says that it was taken in this reconcile.
	wasGranted bool
}

// take asks for the place. The place is in the list of all places, and then in
// the instance's status, before anything is done with it. granted notes what begins with it, in the
// same write. revision is where the node goes, if that may be halted.
func (p *place) take(ctx context.Context, node *corev1.Node, purpose v1alpha1.DisruptionPurpose,
	revision string, granted func()) (policy.Verdict, error) {
	if p.instance.Status.Disruption != nil {
		return policy.Verdict{Allowed: true, Why: "it has its place already"}, nil
	}
	if p.record.saved.Status.Disruption != nil { // or it would pass for who goes ahead in the place that it gave back
		if err := p.record.save(ctx); err != nil {
			return policy.Verdict{}, err
		}
	}
	var verdict policy.Verdict
	var seen policy.Fleet
	shown := &v1alpha1.WindowsInstance{}
	has, err := p.gate.Acquire(ctx, rollout.Request{
		Name: p.life.name(), Node: node.Name, Order: order(p.instance, node),
		Wake: func() { p.wake(p.instance.UID) }, IsLive: p.wasGranted,
		Decide: func(look rollout.Snapshot) bool {
			shown, seen = look.Instances[p.instance.Name], look.Fleet
			if verdict = p.mayDisrupt(look, node.Name, purpose); verdict.Allowed {
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
		err = p.confirmLost(ctx, node.Name, shown, seen)
	}
	if has && err == nil {
		err = p.use(ctx, shown, purpose, granted)
	}
	verdict.Allowed = has && err == nil
	p.wasGranted = verdict.Allowed
	if verdict.Reason == contract.ReasonRolloutHalted || verdict.Reason == contract.ReasonMaintenanceWindowClosed {
		p.gate.Leave(p.life.name()) // a place would be of no use
	}
	return verdict, err
}

// mayDisrupt decides by what is seen whether the node may be disrupted. No window holds a removal, nor a node whose
// daemon was told its revision.
func (p *place) mayDisrupt(look rollout.Snapshot, node string, purpose v1alpha1.DisruptionPurpose) policy.Verdict {
	update := p.instance.Status.Update
	isTold := purpose == v1alpha1.DisruptionUpdate && update != nil && update.SwitchTime != nil
	if purpose == v1alpha1.DisruptionRemove || isTold {
		return look.MayDisruptAnytime(node)
	}
	return look.MayDisrupt(node)
}

// order is the instance's among those who wait.
func order(instance *v1alpha1.WindowsInstance, node *corev1.Node) rollout.Order {
	ready, _ := journey.NodeReady(node)
	order := rollout.Order{NotReady: !ready, Failures: instance.Status.Failures, Since: instance.CreationTimestamp.Time,
		Name: instance.Name}
	if update := instance.Status.Update; update != nil {
		order.Failures += update.Tries
	}
	if reboot := instance.Status.Reboot; reboot != nil {
		order.Failures += reboot.Tries
	}
	return order
}

// confirmLost gives a place back that was given out because the node's pods were lost, if it has come back since the
// fleet was read, by itself or by another operator: its instance does not show that. Between this read and the write of
// the place it still may.
func (p *place) confirmLost(ctx context.Context, node string, shown *v1alpha1.WindowsInstance,
	seen policy.Fleet) error {
	if shown == nil {
		return nil // use finds its place void
	}
	live, err := p.parts.Nodes.Live(ctx, node)
	if err != nil {
		return p.giveBack(ctx, shown, err)
	}
	if seen.With(node, live, shown, p.gate.Observed.NotReady(live)).IsLost(node) {
		return nil
	}
	return p.giveBack(ctx, shown, conflict(p.instance))
}

// giveBack returns a place that is certainly not used, and has the instance read past the cache. The answer is
// why it is not used, with what failed meanwhile.
func (p *place) giveBack(ctx context.Context, shown *v1alpha1.WindowsInstance, why error) error {
	p.life.conflicted = true
	if failed := p.gate.Return(ctx, shown.DeepCopy()); !apierrors.IsConflict(failed) { // void by another's write
		why = errors.Join(why, failed)
	}
	return why
}

// use writes down that the place is used that was given out under the version that was shown, or
// gives it back. A write of which nobody knows whether it arrived leaves it taken until that can be
// seen. An instance that is not what was shown is read again, and finds its place then.
func (p *place) use(ctx context.Context, shown *v1alpha1.WindowsInstance,
	purpose v1alpha1.DisruptionPurpose, granted func()) error {
	if shown == nil || shown.ResourceVersion != p.record.version() {
		p.life.conflicted = true
		p.gate.Freed() // the place is void, or found again
		return conflict(p.instance)
	}
	ctx, cancel := context.WithTimeout(ctx, rollout.UseTimeout)
	defer cancel()
	err := p.record.saveOrRevert(ctx, func() {
		p.instance.Status.Disruption = &v1alpha1.Disruption{Purpose: purpose, Since: journey.Seconds(p.now())}
		granted()
	})
	if rollout.IsNotWritten(err) {
		return p.giveBack(ctx, shown, err)
	}
	return err
}

// conflict says that an instance is not what a decision about it was shown.
func conflict(instance *v1alpha1.WindowsInstance) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "windowsinstances"}, instance.Name,
		errors.New("it is another by now"))
}

// release gives back the place, if the instance had one. It is free once
// the status is saved.
func (p *place) release() {
	p.instance.Status.Disruption, p.instance.Status.DrainTime = nil, nil
	p.gate.Leave(p.life.name())
}
