package policy

import (
	"math"
	"time"
)

const (
	backoffBase = 5 * time.Second
	backoffMax  = 5 * time.Minute
)

// Backoff is how long to wait after the n-th failure in a row, n from 1: 5 s, 10 s, 20 s … at most 5 min, and up to a fifth more by
// jitter in [0,1), so that a fleet that failed together does not come back together.
func Backoff(failures int32, jitter float64) time.Duration {
	exponent := math.Min(float64(max(failures, 1)-1), 10)
	wait := math.Min(float64(backoffBase)*math.Exp2(exponent), float64(backoffMax))
	return time.Duration(wait * (1 + jitter/5)).Round(time.Millisecond)
}
