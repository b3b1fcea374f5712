// Package loop runs background work of the daemon: it calls a step function, waits, and calls it again. It also
// computes growing pauses after failures.
package loop

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// Run calls step until ctx ends. After each call, Run waits for the returned pause, or until wake is signalled.
func Run(ctx context.Context, c clock.Clock, wake <-chan struct{}, step func(ctx context.Context) time.Duration) {
	for ctx.Err() == nil {
		if pause := step(ctx); pause > 0 {
			Wait(ctx, c, wake, pause)
		}
	}
}

// Wait waits until a pause is over, wake is signalled, or ctx ends. It reports whether the pause is over.
func Wait(ctx context.Context, c clock.Clock, wake <-chan struct{}, pause time.Duration) (isOver bool) {
	timer := c.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C():
		return true
	}
	return false
}

// Signal wakes a loop. The channel must have a buffer of one.
func Signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// Grow returns the pause after a failure. After the first failure in a row, previous is zero and the pause is `first`.
// After each further failure, the pause is the previous pause times `factor`, but at most `limit`.
func Grow(previous time.Duration, factor float64, first, limit time.Duration) time.Duration {
	if previous == 0 {
		return first
	}
	return min(time.Duration(float64(previous)*factor), limit)
}

// Jitter changes a pause randomly by up to a fifth in either direction.
func Jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
