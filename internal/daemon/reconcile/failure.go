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

// failures notes in the state file which revision failed last, and when it may be tried again.
type failures struct {
	state     *state.File
	intervals Intervals
	clock     clock.Clock
}

// newFailures takes over what a daemon before this one noted, with no longer a pause than one can
// be: the clock may have been wrong then, or be wrong now.
func newFailures(s *state.File, intervals Intervals, clock clock.Clock) *failures {
	latest := clock.Now().Add(apiclient.Jitter(intervals.RetryLimit))
	if s.Failed != nil && s.Failed.Until.After(latest) {
		s.Failed.Until = latest
	}
	return &failures{state: s, intervals: intervals, clock: clock}
}

// mayTry says whether there is a candidate that did not fail, or is due to be tried again.
func (f *failures) mayTry(c *state.Revision) bool {
	last := f.state.Failed
	return c != nil && (last == nil || last.Name != c.Name || !f.clock.Now().Before(last.Until))
}

// note writes down that a revision could not be had: another process may try it again. A revision that changed
// something on the host is tried again after longer.
func (f *failures) note(ctx context.Context, revision string, why *contract.Problem, changed bool) {
	first, limit := f.intervals.Failing, f.intervals.FailingLimit
	if changed {
		first, limit = f.intervals.Retry, f.intervals.RetryLimit
	}
	f.state.Fail(revision, why, first, limit, func(pause time.Duration) time.Time {
		return f.clock.Now().Add(apiclient.Jitter(pause))
	})
	if err := f.state.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "saving the state file", "failed", revision)
	}
}

// untilNextTry shortens a pause to the time at which a revision other than the present one may be
// tried again. If that time is over, it was tried in this pass, or it is not known now.
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

// fetchProblem is why a fetch did not succeed, in the words of the revision that failed for it. What one failed
// of otherwise says more.
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

// clear forgets the failure.
func (f *failures) clear(ctx context.Context) {
	revision := f.state.Failed.Name
	f.state.Failed = nil
	if err := f.state.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Info("saving the state file", "failedNoLonger", revision, "detail", err.Error())
	}
}
