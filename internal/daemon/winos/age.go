package winos

import (
	"math"
	"time"
)

// Age returns the duration from at to now, by the host's clock. If at is in the future because the clock was set back,
// Age returns the maximum duration, so that no delay lasts forever.
func Age(now, at time.Time) time.Duration {
	if now.Before(at) {
		return math.MaxInt64
	}
	return now.Sub(at)
}
