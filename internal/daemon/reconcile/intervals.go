package reconcile

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
)

// Intervals are the times between checks, retries and writes.
type Intervals struct {
	// QuickCheck is the time between quick checks of services, sizes of files, the environment, certificates, routes
	// and addresses. Default: 10 s.
	QuickCheck time.Duration
	// Resync is the time between passes in the desired state, plus or minus a random fifth. Default: 2 min.
	Resync time.Duration
	// If a pass lacks a fact that no event announces, such as the overlay network's subnet, Waiting is the first pause
	// after the pass. The pause grows up to WaitingLimit. Defaults: 1 s and 15 s.
	Waiting, WaitingLimit time.Duration
	// Failing is the first pause after a failed pass. It doubles up to FailingLimit. Defaults: 5 s and 1 min.
	Failing, FailingLimit time.Duration
	// Retry is the pause before a failed revision's first retry. It doubles up to RetryLimit. Defaults: 1 and 20 min.
	Retry, RetryLimit time.Duration
	// Status is the shortest time between two writes of the apply-status annotation. Default: 5 s.
	Status time.Duration
	// Settle is how long a wait must last before the daemon reports it. Most waits of a join are shorter. Default: 3 s.
	Settle time.Duration
}

func (i Intervals) withDefaults() Intervals {
	for value, fallback := range map[*time.Duration]time.Duration{
		&i.QuickCheck: 10 * time.Second, &i.Resync: 2 * time.Minute, &i.Waiting: time.Second,
		&i.WaitingLimit: 15 * time.Second,
		&i.Failing:      5 * time.Second, &i.FailingLimit: time.Minute, &i.Status: 5 * time.Second,
		&i.Settle: 3 * time.Second,
		&i.Retry:  time.Minute, &i.RetryLimit: 20 * time.Minute,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	return i
}

// pauses computes the time until the next check. While passes fail or have to wait, the pauses start short and grow.
// When an input changes, the pauses start short again.
type pauses struct {
	intervals Intervals
	clock     clock.Clock
	// `failing` is the current pause after a failure, and `waiting` is the current pause during a wait.
	failing, waiting time.Duration
	waitsSince       time.Time
}

func (p *pauses) resting() bool { return p.failing+p.waiting == 0 }

func (p *pauses) next(report apply.Report, changed bool) time.Duration {
	if changed {
		p.failing, p.waiting = 0, 0
	}
	if len(report.Waiting) == 0 {
		p.waitsSince = time.Time{}
	} else if p.waitsSince.IsZero() {
		p.waitsSince = p.clock.Now()
	}
	switch {
	case len(report.Failed) > 0:
		p.failing, p.waiting = loop.Grow(p.failing, 2, p.intervals.Failing, p.intervals.FailingLimit), 0
		return loop.Jitter(p.failing)
	case len(report.Waiting) > 0:
		p.waiting, p.failing = loop.Grow(p.waiting, 1.5, p.intervals.Waiting, p.intervals.WaitingLimit), 0
		return p.waiting
	}
	p.failing, p.waiting = 0, 0
	return p.intervals.QuickCheck
}
