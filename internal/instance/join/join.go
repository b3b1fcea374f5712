// Package join turns a host into a node, in eight phases over one connection. The last phase waits for the daemon. The
// instance controller runs the phases, saves the status, and requests a slot in the rollout budget if a phase needs
// one.
package join

import (
	"context"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// Join turns hosts into nodes of the cluster.
type Join struct{ *journey.Parts }

// Phase is one step of a join.
type Phase struct {
	Name v1alpha1.Phase
	// If Remote is true and the Session has no connection, the join starts again from the phase Connecting.
	Remote bool
	Run    func(ctx context.Context, instance *v1alpha1.WindowsInstance, session *journey.Session) journey.Outcome
}

// Phases returns the phases of a join, in their order.
func (j *Join) Phases() []Phase {
	return []Phase{
		{Name: v1alpha1.PhaseConnecting, Run: j.connect},
		{Name: v1alpha1.PhasePreflight, Remote: true, Run: j.preflight},
		{Name: v1alpha1.PhasePreparing, Remote: true, Run: j.prepare},
		{Name: v1alpha1.PhaseDelivering, Remote: true, Run: j.deliver},
		{Name: v1alpha1.PhaseBootstrapping, Remote: true, Run: j.bootstrap},
		{Name: v1alpha1.PhaseAdopting, Remote: true, Run: j.adopt},
		{Name: v1alpha1.PhaseHandingOver, Remote: true, Run: j.handOver},
		{Name: v1alpha1.PhaseConfirming, Run: j.confirm},
	}
}

// Resume returns the index of the phase where a join continues. The join starts again if a remote phase has lost its
// connection, or if the attempt failed in the last phase. It also starts again if the revision that the host waits for
// is no longer desired. Starting again is safe, because every phase first checks the current state.
func (j *Join) Resume(ctx context.Context, instance *v1alpha1.WindowsInstance, session *journey.Session) int {
	phase, passed := instance.Status.Phase, instance.Status.Phases
	if phase == v1alpha1.PhaseConfirming && len(passed) > 0 && passed[len(passed)-1].Milliseconds != nil {
		return 0
	}
	if phase == v1alpha1.PhaseConfirming {
		if desired, _, err := j.Revisions.Of(ctx, instance); err == nil &&
			desired.Revision != instance.Status.DesiredRevision {
			return 0
		}
	}
	for i, p := range j.Phases() {
		if p.Name == phase && (!p.Remote || session.Connected()) {
			return i
		}
	}
	return 0
}
