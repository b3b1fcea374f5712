package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// failure is a revision that could not be had.
type failure struct {
	revision string
	problem  *contract.Problem
	// until is when the next attempt is due.
	until time.Time
}

// failures has the revision that failed last.
type failures struct {
	state     *state.File
	intervals Intervals
	clock     clock.Clock
	last      *failure
}

// newFailures takes over what a daemon before this one noted, with no longer a pause than one can
// be: the clock may have been wrong then, or be wrong now.
func newFailures(s *state.File, intervals Intervals, clock clock.Clock) *failures {
	f := &failures{state: s, intervals: intervals, clock: clock}
	if noted := s.Failed; noted != nil {
		f.last = &failure{revision: noted.Name, problem: noted.Problem, until: noted.Until}
		if latest := clock.Now().Add(apiclient.Jitter(intervals.RetryLimit)); f.last.until.After(latest) {
			f.last.until = latest
		}
	}
	return f
}

// mayTry says whether there is a candidate that did not fail, or is due to be tried again.
func (f *failures) mayTry(c *state.Revision) bool {
	return c != nil && (f.last == nil || f.last.revision != c.Name || !f.clock.Now().Before(f.last.until))
}

// untilNextTry shortens a pause to the time at which a revision other than the present one may be
// tried again. If that time is over, it was tried in this pass, or it is not known now.
func (f *failures) untilNextTry(pause time.Duration, present string) time.Duration {
	if f.last == nil || f.last.revision == present {
		return pause
	}
	if left := f.last.until.Sub(f.clock.Now()); left > 0 {
		return min(pause, left)
	}
	return pause
}

// note remembers that a revision could not be had, in the state file too: who tries it again may be
// another process. One that changed something on the host is tried again after longer.
func (f *failures) note(ctx context.Context, revision string, why *contract.Problem, changed bool) {
	first, limit := f.intervals.Failing, f.intervals.FailingLimit
	if changed {
		first, limit = f.intervals.Retry, f.intervals.RetryLimit
	}
	f.state.Fail(revision, why, first, limit, func(pause time.Duration) time.Time {
		return f.clock.Now().Add(apiclient.Jitter(pause))
	})
	f.last = &failure{revision: revision, problem: f.state.Failed.Problem, until: f.state.Failed.Until}
	if err := f.state.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "saving the state file", "failed", revision)
	}
}

// fetchProblem is why a fetch did not succeed, in the words of the revision that failed for it. What one failed
// of otherwise says more.
func (f *failures) fetchProblem(why *contract.Problem) *contract.Problem {
	switch {
	case why == nil || f.last == nil:
		return why
	case !ofPayload(f.last.problem):
		return nil
	}
	return f.state.HeldInstead(f.last.revision, why)
}

// clear forgets the failure.
func (f *failures) clear(ctx context.Context) {
	revision := ""
	if f.last != nil {
		revision = f.last.revision
	}
	f.last, f.state.Failed = nil, nil
	if err := f.state.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Info("saving the state file", "failedNoLonger", revision, "detail", err.Error())
	}
}
