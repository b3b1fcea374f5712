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

// A CA of ours that Windows does not let go is brought by somebody else, too, such as by group policy, which
// shows in the same store. That says nothing about a revision and keeps none from being verified. Its removal is tried
// again a few times, in case that ends; then the CA is the other's, and is left to him.
const (
	removalPause = time.Hour
	maxRemovals  = 3
)

// kept are the CAs that could not be removed, by fingerprint.
type kept struct {
	now func() time.Time
	of  map[string]*denial
}

// denial is what is known of one.
type denial struct {
	problem *contract.Problem
	times   int
	last    time.Time
}

// held says whether a step is to be left for now.
func (k *kept) held(step plan.Step) bool {
	d := k.of[step.Name]
	return step.Kind == plan.RemoveRoot && d != nil && winos.Age(k.now(), d.last) < removalPause
}

// denied takes note of a step that failed, if it is a removal that is denied. It says whether it was that.
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

// giveUp has what was tried often enough count as somebody else's, and names the rest. What is wanted again is no
// problem.
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
