package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// failures records in the state file which revision failed last, and when the daemon may try it again.
type failures struct {
	state     *state.File
	intervals Intervals
	clock     clock.Clock
}

// newFailures keeps the failure that an earlier daemon recorded. It limits the remaining pause to the maximum, because
// the clock may have been wrong when the failure was recorded, or may be wrong now.
func newFailures(s *state.File, intervals Intervals, clock clock.Clock) *failures {
	latest := clock.Now().Add(loop.Jitter(intervals.RetryLimit))
	if s.Failed != nil && s.Failed.Until.After(latest) {
		s.Failed.Until = latest
	}
	return &failures{state: s, intervals: intervals, clock: clock}
}

// mayTry reports whether c may be tried now. If c is the revision that failed last, its retry must be due.
func (f *failures) mayTry(c *state.Revision) bool {
	last := f.state.Failed
	return c != nil && (last == nil || last.Name != c.Name || !f.clock.Now().Before(last.Until))
}

// note records in the state file that a revision failed, so that a restarted daemon also knows when to retry this
// revision. If the revision changed the host, the pause before the retry is longer.
func (f *failures) note(ctx context.Context, revision string, why *contract.Problem, changed bool) {
	first, limit := f.intervals.Failing, f.intervals.FailingLimit
	if changed {
		first, limit = f.intervals.Retry, f.intervals.RetryLimit
	}
	f.state.Fail(revision, why, first, limit, func(pause time.Duration) time.Time {
		return f.clock.Now().Add(loop.Jitter(pause))
	})
	if err := f.state.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "saving the state file", "failed", revision)
	}
}

// untilNextTry shortens a pause so that it ends at the time of the failed revision's next retry. It doesn't change the
// pause if no revision failed, if the host has the failed revision now, or if the retry was due already. In the last
// case, this pass has tried the revision, or the daemon can't read it now.
func (f *failures) untilNextTry(pause time.Duration) time.Duration {
	last := f.state.Failed
	if last == nil || last.Name == f.state.Revision.Name {
		return pause
	}
	if left := last.Until.Sub(f.clock.Now()); left > 0 {
		return min(pause, left)
	}
	return pause
}

// fetchProblem returns the problem to report. `why` is the problem of the last fetch. If a revision failed because
// payload was missing, the result also names that revision. If a revision failed for another reason, the result is nil,
// because the problem of that revision is more useful.
func (f *failures) fetchProblem(why *contract.Problem) *contract.Problem {
	last := f.state.Failed
	switch {
	case why == nil || last == nil:
		return why
	case !ofPayload(last.Problem):
		return nil
	}
	return f.state.HeldInstead(last.Name, why)
}

func (f *failures) clear(ctx context.Context) {
	revision := f.state.Failed.Name
	f.state.Failed = nil
	if err := f.state.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Info("saving the state file", "failedNoLonger", revision, "detail", err.Error())
	}
}
