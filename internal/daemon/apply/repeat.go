package apply

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// If a step with the same goal is taken maxRepeats times within repeatsWindow, something else undoes it: a group policy
// or another tool. Such programs act at most every few minutes. A person who experiments rarely reaches this limit. At
// the limit, the daemon reports the conflict and takes the step less and less often, so that two programs don't fight
// all day. The daemon notices the end of a conflict after lastPause at the latest. A reported problem blocks the next
// revision. So if no step was needed for repeatsWindow and for twice the pause, the daemon stops reporting the problem.
const (
	maxRepeats    = 3
	repeatsWindow = 15 * time.Minute
	firstPause    = time.Minute
	lastPause     = 15 * time.Minute
)

// `repeats` detects steps that are needed again and again.
type repeats struct {
	now func() time.Time
	of  map[subject]*fight
}

// subject is what a step changes: an aspect of an object. Windows ignores the case of the object's name.
type subject struct{ aspect, name string }

func subjectOf(step plan.Step) subject {
	aspect := string(step.Kind)
	switch step.Kind {
	case plan.AddRoot, plan.RemoveRoot:
		aspect = "root"
	case plan.WriteFile, plan.RemoveFile:
		aspect = "file"
	case plan.SetVariable, plan.UnsetVariable, plan.PutBack:
		aspect = "variable"
	case plan.SetService, plan.RemoveService:
		aspect = "service"
	}
	return subject{aspect, strings.ToLower(step.Name)}
}

// fight is the history of steps on one subject.
type fight struct {
	// step is the latest step. A step of another kind or goal starts a new history, because the desired state changed.
	step plan.Step
	// times are when the steps were taken, the latest last.
	times []time.Time
	// pause is how long the next step must wait.
	pause time.Duration
}

// isAbout reports whether a step has the same goal as the steps in this history.
func (f *fight) isAbout(step plan.Step) bool {
	return f.step.Kind == step.Kind && f.step.Want == step.Want
}

func (f *fight) on() bool { return len(f.times) >= maxRepeats }

func (f *fight) quiet(now time.Time) time.Duration { return winos.Age(now, f.times[len(f.times)-1]) }

// `over` reports whether the conflict has ended, because no step was needed for long enough.
func (f *fight) over(now time.Time) bool { return f.quiet(now) > max(repeatsWindow, 2*f.pause) }

// `took` records a step. It ignores starts and stops, because `histories` tracks them. It also ignores removals of pod
// networks: if a revision fails repeatedly, our own service creates its network each time, and no other program is
// involved.
func (r *repeats) took(step plan.Step) {
	if step.Kind == plan.StartService || step.Kind == plan.StopService || step.Kind == plan.RemoveNetwork {
		return
	}
	f := r.of[subjectOf(step)]
	if f == nil || !f.isAbout(step) || f.over(r.now()) {
		f = &fight{step: step}
		r.of[subjectOf(step)] = f
	}
	f.times = append(f.times, r.now())
	if f.on() {
		f.pause = min(max(2*f.pause, firstPause), lastPause)
	}
}

func (r *repeats) held(step plan.Step) bool {
	f := r.of[subjectOf(step)]
	return f != nil && f.isAbout(step) && f.on() && f.quiet(r.now()) < f.pause
}

// problems returns a problem for each object that something else keeps changing.
func (r *repeats) problems() (all []*contract.Problem) {
	now := r.now()
	for about, f := range r.of {
		if f.over(now) {
			delete(r.of, about)
			continue
		}
		if !f.on() {
			f.times = slices.DeleteFunc(f.times, func(at time.Time) bool {
				return winos.Age(now, at) > repeatsWindow
			})
			continue
		}
		if f.quiet(now) > 2*f.pause {
			continue
		}
		all = append(all, contract.NewProblem(contract.ReasonForeignInterference,
			"%s is undone every time: %d times since %s; it is put right less often now",
			subjectText(f.step), len(f.times), f.times[0].UTC().Format(time.RFC3339)))
	}
	slices.SortFunc(all, func(a, b *contract.Problem) int { return cmp.Compare(a.Detail, b.Detail) })
	return all
}

func subjectText(step plan.Step) string {
	switch step.Kind {
	case plan.Restrict:
		return fmt.Sprintf("restricting %s to Administrators", step.Name)
	case plan.AddRoot, plan.RemoveRoot:
		return fmt.Sprintf("%s of the certificate with SHA-256 %.16s",
			map[plan.Kind]string{plan.AddRoot: "adding", plan.RemoveRoot: "removing"}[step.Kind], step.Name)
	case plan.SetVariable, plan.UnsetVariable, plan.PutBack:
		return "the value of environment variable " + step.Name
	case plan.SetService, plan.RemoveService:
		return "the configuration of service " + step.Name
	}
	return step.Name
}
