package reconcile

import (
	"slices"
	"sync/atomic"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// supply fetches missing payload.
type supply struct {
	store *payload.Store
	// stager fetches in its own goroutine. It is nil if nothing can be fetched.
	stager *payload.Stager
	// arrived is set by the stager when an attempt to fetch ends.
	arrived atomic.Bool
}

// lacks returns a problem while the candidate's payload is incomplete and is being fetched. It returns nil if nothing
// is missing, or if the payload can't be fetched. A candidate whose payload can't be fetched is tried anyway: if its
// files are already in place, it needs no blob. Otherwise the attempt fails without a change of the host.
func (s *supply) lacks(c *state.Revision) *contract.Problem {
	if s.stager == nil {
		return nil
	}
	blobs := c.Manifest.Blobs()
	missing := s.missing(blobs)
	if missing == 0 {
		return nil
	}
	var coming *contract.Problem
	if over, problem := s.stager.Need(c.Name, blobs); !over || problem == nil {
		coming = contract.NewProblem(contract.ReasonPayloadIncomplete,
			"%s%d of %d blobs are not on the host yet", contract.AboutRevision(c.Name), missing, len(blobs))
	}
	return coming
}

// missing counts the blobs that are not on the host. If the store can't be read, missing returns 0, and the pass
// reports the error.
func (s *supply) missing(blobs []contract.Blob) int {
	missing, err := s.store.Missing(blobs)
	if err != nil {
		return 0
	}
	return len(missing)
}

// fetch starts fetching the payload that a pass lacked, and returns why fetching failed.
func (s *supply) fetch(present state.State, c *state.Revision, report apply.Report) (why *contract.Problem) {
	if s.stager == nil {
		return nil
	}
	revision, blobs := present.Revision.Name, present.Manifest.Blobs()
	switch {
	case c != nil && c.Name != present.Revision.Name && s.missing(c.Manifest.Blobs()) > 0:
		revision, blobs = c.Name, c.Manifest.Blobs()
	case !slices.ContainsFunc(report.Failed, ofPayload) || s.missing(blobs) == 0:
		s.stager.Content()
		return nil
	}
	_, why = s.stager.Need(revision, blobs)
	return why
}

func ofPayload(p *contract.Problem) bool {
	return p.Reason == contract.ReasonPayloadIncomplete || p.Reason == contract.ReasonPayloadCorrupt
}

// supplied reports whether an attempt to fetch has ended since the last call. If a revision failed for lack of payload
// that is now complete, supplied makes it due for a retry.
func (r *Reconciler) supplied(c *state.Revision) bool {
	if !r.supply.arrived.Swap(false) {
		return false
	}
	if last := r.State.Failed; last != nil && c != nil && c.Name == last.Name && ofPayload(last.Problem) &&
		r.supply.missing(c.Manifest.Blobs()) == 0 {
		last.Until = r.Clock.Now()
	}
	return true
}
