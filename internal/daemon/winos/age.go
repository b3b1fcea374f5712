package winos

import (
	"math"
	"time"
)

// Age returns the time between `at` and `now`. If `at` is in the future because the host's clock was set back, Age
// returns the maximum duration, so that no delay lasts forever.
func Age(now, at time.Time) time.Duration {
	if now.Before(at) {
		return math.MaxInt64
	}
	return now.Sub(at)
}
