package instance

import (
	"context"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// place is an instance's place in the rollout budget, or its request for one.
type place struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	record   *record
	// isWanted says that it was asked for in this reconcile, isUndecided that nothing is decided about that yet.
	isWanted, isUndecided bool
}

// take asks for the place. The request is in the status, then the place is on the list of all places, and in the
// status again, before anything is done with it. granted notes what begins with it, in the same write. revision is the
// one that the node is taken to, if the rollout of that may be halted.
func (p *place) take(ctx context.Context, purpose v1alpha1.DisruptionPurpose, revision string,
	granted func()) (policy.Verdict, error) {
	status := &p.instance.Status
	p.isWanted = true
	if status.HasPlace() {
		return policy.Verdict{Allowed: true, Why: "it has its place already"}, nil
	}
	if d := status.Disruption; d == nil || d.Purpose != purpose || d.Revision != revision {
		status.Disruption = &v1alpha1.Disruption{Purpose: purpose, Revision: revision,
			RequestTime: journey.Micros(p.now())}
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
	return policy.Verdict{Allowed: true, Why: "it is on the list of places"}, p.record.save(ctx)
}

// undecided is the answer to a request about which the rollout controller has yet to decide.
func (p *place) undecided() policy.Verdict {
	p.isUndecided = true
	return policy.Verdict{Why: "it is about to be decided"}
}

// release gives the place back, or withdraws the request for one. The place is free once the status is saved.
func (p *place) release() {
	p.instance.Status.Disruption, p.instance.Status.DrainTime = nil, nil
}

// withdraw withdraws a request that nobody made again in this reconcile: its place would keep others waiting.
func (p *place) withdraw() {
	if !p.isWanted && !p.instance.Status.HasPlace() {
		p.instance.Status.Disruption = nil
	}
}
