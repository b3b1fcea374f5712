package apply

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// A step that is taken maxRepeats times within repeatsWindow, each time to the same end, is undone
// by somebody: a group policy or another tool, which act every few minutes at the most. A person
// who tries things out rarely gets there. Then it is said, and the step is taken less and less
// often, so that two programs do not fight all day; a fight that is over is noticed at the latest
// after lastPause. What was not undone for twice the pause is no problem any more, as it would keep the
// next revision from being reached; it is still remembered.
const (
	maxRepeats    = 3
	repeatsWindow = 15 * time.Minute
	firstPause    = time.Minute
	lastPause     = 15 * time.Minute
)

// repeats notices steps that have to be taken again and again.
type repeats struct {
	now func() time.Time
	of  map[subject]*fight
}

// subject is what a step is about.
type subject struct {
	kind plan.Kind
	name string
}

// fight is what is known of steps about one subject.
type fight struct {
	// want is what the steps were to bring about. Another end is another story.
	want string
	// times are when they were taken, the latest last.
	times []time.Time
	// pause is how long the next one waits.
	pause time.Duration
}

func (f *fight) on() bool { return len(f.times) >= maxRepeats }

// quiet is how long ago the last step was.
func (f *fight) quiet(now time.Time) time.Duration { return winos.Age(now, f.times[len(f.times)-1]) }

// over says that the next step was not needed for long enough.
func (f *fight) over(now time.Time) bool { return f.quiet(now) > max(repeatsWindow, 2*f.pause) }

// took notes a step. Starts and stops are left out: lives knows more about those. So are networks of pods:
// a service of ours made each that is removed, for a revision that did not hold.
func (r *repeats) took(step plan.Step) {
	if step.Kind == plan.StartService || step.Kind == plan.StopService || step.Kind == plan.RemoveNetwork {
		return
	}
	about := subject{step.Kind, step.Name}
	// it was we who undid it, because something else is wanted now
	maps.DeleteFunc(r.of, func(other subject, _ *fight) bool {
		return strings.EqualFold(other.name, step.Name) && slices.Contains(undoes(step.Kind), other.kind)
	})
	f := r.of[about]
	if f == nil || f.want != step.Want || f.over(r.now()) {
		f = &fight{want: step.Want}
		r.of[about] = f
	}
	f.times = append(f.times, r.now())
	if f.on() {
		f.pause = min(max(2*f.pause, firstPause), lastPause)
	}
}

// undoes are the kinds of steps that a kind undoes.
func undoes(kind plan.Kind) []plan.Kind {
	switch kind {
	case plan.AddRoot:
		return []plan.Kind{plan.RemoveRoot}
	case plan.RemoveRoot:
		return []plan.Kind{plan.AddRoot}
	case plan.WriteFile:
		return []plan.Kind{plan.RemoveFile}
	case plan.RemoveFile:
		return []plan.Kind{plan.WriteFile}
	case plan.SetVariable:
		return []plan.Kind{plan.UnsetVariable, plan.PutBack}
	case plan.UnsetVariable, plan.PutBack:
		return []plan.Kind{plan.SetVariable}
	case plan.SetService:
		return []plan.Kind{plan.RemoveService}
	case plan.RemoveService:
		return []plan.Kind{plan.SetService}
	}
	return nil
}

// held says whether a step is to be left for now.
func (r *repeats) held(step plan.Step) bool {
	f := r.of[subject{step.Kind, step.Name}]
	return f != nil && f.want == step.Want && f.on() && f.quiet(r.now()) < f.pause
}

// problems names what somebody else keeps changing.
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
			subjectText(about), len(f.times), f.times[0].UTC().Format(time.RFC3339)))
	}
	slices.SortFunc(all, func(a, b *contract.Problem) int { return cmp.Compare(a.Detail, b.Detail) })
	return all
}

func subjectText(about subject) string {
	switch about.kind {
	case plan.Restrict:
		return fmt.Sprintf("restricting %s to Administrators", about.name)
	case plan.AddRoot, plan.RemoveRoot:
		return fmt.Sprintf("%s of the certificate with SHA-256 %.16s",
			map[plan.Kind]string{plan.AddRoot: "adding", plan.RemoveRoot: "removing"}[about.kind], about.name)
	case plan.SetVariable, plan.UnsetVariable, plan.PutBack:
		return "the value of environment variable " + about.name
	case plan.SetService, plan.RemoveService:
		return "the configuration of service " + about.name
	}
	return about.name
}
