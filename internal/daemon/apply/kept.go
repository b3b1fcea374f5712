package apply

import (
	"errors"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// If Windows refuses to remove one of our CAs, someone else also provides it. For example, the certificates of a
// group policy are in the same store. This doesn't concern the revision. The removal is retried a few times. Then
// the CA counts as someone else's and stays.
const (
	removalPause = time.Hour
	maxRemovals  = 3
)

// kept are the CAs that could not be removed, by fingerprint.
type kept struct {
	now func() time.Time
	of  map[string]*denial
}

// denial records refused removals of one CA.
type denial struct {
	problem *contract.Problem
	times   int
	last    time.Time
}

// held reports whether a step must be skipped for now.
func (k *kept) held(step plan.Step) bool {
	d := k.of[step.Name]
	return step.Kind == plan.RemoveRoot && d != nil && winos.Age(k.now(), d.last) < removalPause
}

// denied records a failed step if it is a refused removal, and reports whether it was one.
func (k *kept) denied(step plan.Step, err error, problem *contract.Problem) bool {
	if step.Kind != plan.RemoveRoot || !errors.Is(err, winos.ErrDenied) {
		return false
	}
	d := k.of[step.Name]
	if d == nil {
		d = &denial{}
		k.of[step.Name] = d
	}
	d.problem, d.times, d.last = problem, d.times+1, k.now()
	return true
}

// giveUp treats CAs with enough refused removals as someone else's, and reports the remaining ones. A CA that
// is wanted again is no problem.
func (k *kept) giveUp(stateFile *state.File, wanted map[string][]byte) (problems []*contract.Problem) {
	ours := map[string]bool{}
	for _, der := range slices.Clone(stateFile.Certificates) {
		name := plan.Fingerprint(der)
		d := k.of[name]
		switch {
		case d == nil || wanted[name] != nil:
		case d.times >= maxRemovals:
			stateFile.RemoveCertificate(der)
			continue
		default:
			problems = append(problems, d.problem)
		}
		ours[name] = wanted[name] == nil
	}
	for name := range k.of {
		if !ours[name] {
			delete(k.of, name)
		}
	}
	return problems
}
