package winos

import (
	"math"
	"time"
)

// Age is how long ago something was by the host's clock. A time in the future, as a clock that was
// set back leaves behind, is as old as can be: it ends every pause, and counts for nothing.
func Age(now, at time.Time) time.Duration {
	if now.Before(at) {
		return math.MaxInt64
	}
	return now.Sub(at)
}
