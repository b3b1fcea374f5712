package winos

import (
	"math"
	"time"
)

// Age returns how long ago a time was, by the host's clock. If the time is in the future, because the clock
// was set back, Age returns the maximum duration: every delay is over.
func Age(now, at time.Time) time.Duration {
	if now.Before(at) {
		return math.MaxInt64
	}
	return now.Sub(at)
}
