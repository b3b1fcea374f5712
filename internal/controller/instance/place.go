package instance

import (
	"context"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// place is an instance's slot in the rollout budget, or its request for a slot.
type place struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	record   *record
	// isWanted reports that this reconcile requested the slot, and isUndecided that there is no decision yet.
	isWanted, isUndecided bool
}

// take requests the slot. First it writes the request to the status. Then the rollout controller adds the slot to
// the list. Then take writes the slot to the status. granted changes the status in that last write. revision is the
// node's next revision, if its rollout can be halted.
func (p *place) take(ctx context.Context, purpose v1alpha1.DisruptionPurpose, revision string,
	granted func()) (policy.Verdict, error) {
	status := &p.instance.Status
	p.isWanted = true
	if status.HasPlace() {
		return policy.Verdict{Allowed: true, Why: "it holds its slot already"}, nil
	}
	if d := status.Disruption; d == nil || d.Purpose != purpose || d.Revision != revision {
		status.Disruption = &v1alpha1.Disruption{Purpose: purpose, Revision: revision}
		return p.undecided(), nil
	}
	verdict, known := p.rollout.Verdict(p.instance)
	if known && !verdict.Allowed {
		p.isUndecided = verdict.Reason == contract.ReasonAPICallFailed
		return verdict, nil
	}
	has, err := p.rollout.HasPlace(ctx, p.instance)
	if err != nil {
		return p.undecided(), err
	}
	if verdict, known = p.rollout.Verdict(p.instance); !has && known && !verdict.Allowed {
		return verdict, nil
	}
	if !has {
		return p.undecided(), nil
	}
	since := journey.Seconds(p.now())
	status.Disruption.Since = &since
	granted()
	return policy.Verdict{Allowed: true, Why: "it is on the list of slots"}, p.record.save(ctx)
}

// undecided returns the verdict until the rollout controller has decided.
func (p *place) undecided() policy.Verdict {
	p.isUndecided = true
	return policy.Verdict{Why: "the decision is pending"}
}

// release releases the slot, or withdraws the request. The slot is free once the status is saved.
func (p *place) release() {
	p.instance.Status.Disruption = nil
}

// withdraw removes a request that this reconcile did not repeat. Otherwise its slot would keep other nodes waiting.
func (p *place) withdraw() {
	if !p.isWanted && !p.instance.Status.HasPlace() {
		p.instance.Status.Disruption = nil
	}
}
