package reconcile

import (
	"slices"
	"sync/atomic"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

type supply struct {
	store *payload.Store
	// stager fetches payload in its own goroutine. It is nil if the daemon can't fetch payload.
	stager *payload.Stager
	// arrived is set by the stager when an attempt to fetch ends.
	arrived atomic.Bool
}

// `lacks` returns a problem while the Stager fetches the candidate's missing payload. It returns nil if no payload is
// missing, or if the last attempt to fetch the payload failed. In the second case, the daemon tries the candidate
// anyway, because the files of the missing blobs may already be in place. If they aren't, the trial fails before it
// changes the host.
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

// `missing` counts the blobs that are not on the host. If the store can't be read, `missing` returns 0, so that a pass
// runs and reports the error.
func (s *supply) missing(blobs []contract.Blob) int {
	missing, err := s.store.Missing(blobs)
	if err != nil {
		return 0
	}
	return len(missing)
}

// fetch asks the Stager for missing payload of the candidate, or of the current revision if the pass failed because
// payload was missing. The result is the problem of the last attempt to fetch this payload, or nil.
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

// `supplied` reports whether an attempt to fetch payload has ended since the last call. If the candidate failed because
// payload was missing, and its payload is complete now, supplied makes the candidate due for a retry.
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
