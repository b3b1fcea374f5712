package keep

import (
	"cmp"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/agent/plan"
	"github.com/windows-nodes/wmco/internal/contract"
)

// A step that is taken maxRepeats times within repeatsWindow is undone by somebody. A person who tries things out does not get there; a group policy or
// another tool, which acts every few minutes at the most, does.
const (
	maxRepeats    = 5
	repeatsWindow = 15 * time.Minute
)

// repeats notices steps that have to be taken again and again.
type repeats struct {
	now func() time.Time
	of  map[plan.Step][]time.Time
}

// took notes a step. Starts are left out: lives knows more about those.
func (r *repeats) took(step plan.Step) {
	if step.Kind == plan.StartService || step.Kind == plan.StopService {
		return
	}
	step.Why = ""
	r.of[step] = append(r.of[step], r.now())
}

// problems names what somebody else keeps changing.
func (r *repeats) problems() (all []*contract.Problem) {
	for step, times := range r.of {
		times = slices.DeleteFunc(times, func(at time.Time) bool { return r.now().Sub(at) > repeatsWindow })
		if len(times) == 0 {
			delete(r.of, step)
			continue
		}
		r.of[step] = times
		if len(times) >= maxRepeats {
			all = append(all, contract.NewProblem(contract.ReasonForeignInterference, "%s was put right %d times or more within %s", step.Name, maxRepeats, repeatsWindow))
		}
	}
	slices.SortFunc(all, func(a, b *contract.Problem) int { return cmp.Compare(a.Detail, b.Detail) })
	return all
}
