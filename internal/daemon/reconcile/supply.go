package reconcile

import (
	"slices"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
)

// lacks says what of a desired state's payload is not on the host and is being fetched; nil when
// nothing is, or when it can't be had. Then the state is tried anyway: what is in its place already
// needs no blob, and otherwise nothing changes.
func (t *Reconciler) lacks(w *candidate) *contract.Problem {
	if t.stager == nil {
		return nil
	}
	blobs := w.Manifest.Blobs()
	missing := t.missing(blobs)
	if missing == 0 {
		return nil
	}
	var coming *contract.Problem
	if over, problem := t.stager.Need(w.Version, blobs); !over || problem == nil {
		coming = contract.NewProblem(contract.ReasonPayloadIncomplete,
			"version %s: %d of %d blobs are not on the host yet", w.Version, missing, len(blobs))
	}
	return coming
}

// missing counts the blobs that are not on the host. A store that can't be looked at is for the
// pass to say.
func (t *Reconciler) missing(blobs []contract.Blob) int {
	missing, err := t.store.Missing(blobs)
	if err != nil {
		return 0
	}
	return len(missing)
}

// supply has what a pass lacked be fetched.
func (t *Reconciler) supply(w *candidate, report apply.Report) {
	if t.stager == nil {
		return
	}
	version, blobs := t.Book.Version, t.Book.Manifest.Blobs()
	if w != nil && w.Version != t.Book.Version {
		version, blobs = w.Version, w.Manifest.Blobs()
	} else if !slices.ContainsFunc(report.Failed, ofPayload) {
		t.stager.Content()
		return
	}
	if t.missing(blobs) == 0 {
		t.stager.Content()
		return
	}
	_, _ = t.stager.Need(version, blobs) // what comes of it is asked when it is over
}

// supplied says whether fetching came to an end since it was last asked. What was refused for want
// of payload is worth another try then.
func (t *Reconciler) supplied(w *candidate) bool {
	if !t.arrived.Swap(false) {
		return false
	}
	if t.refused == nil || w == nil || w.Version != t.refused.version || !ofPayload(t.refused.problem) {
		return true
	}
	if t.missing(w.Manifest.Blobs()) == 0 {
		t.refused.until = t.Clock.Now()
	}
	return true
}

func ofPayload(p *contract.Problem) bool {
	return p.Reason == contract.ReasonPayloadIncomplete || p.Reason == contract.ReasonPayloadCorrupt
}
