package policy

import (
	"math"
	"time"
)

const (
	backoffBase = 5 * time.Second
	backoffMax  = 5 * time.Minute

	// keyBackoffBase lets a key be authorised and tried within seconds; keyBackoffMax keeps what
	// looks like an intruder to a host rare.
	keyBackoffBase = 10 * time.Second
	keyBackoffMax  = 30 * time.Minute

	// disruptBackoffBase lets others have their turn first; disruptBackoffMax keeps pods from being
	// moved for nothing again and again.
	disruptBackoffBase = time.Minute
	disruptBackoffMax  = 30 * time.Minute
)

// The longest pauses, jitter included.
const (
	LongestBackoff        = backoffMax * 6 / 5
	LongestKeyBackoff     = keyBackoffMax * 6 / 5
	LongestDisruptBackoff = disruptBackoffMax * 6 / 5
)

// Backoff is how long to wait after the n-th failure in a row, n from 1: 5 s, 10 s, 20 s … at most
// 5 min, and up to a fifth more by jitter in [0,1), so that a fleet that failed together does not
// come back together.
func Backoff(failures int32, jitter float64) time.Duration {
	return doubled(backoffBase, backoffMax, failures, jitter)
}

// KeyBackoff is how long to wait before a host that has joined is asked again whether it accepts a
// key: 10 s, 20 s, 40 s … at most 30 min, and up to a fifth more by jitter in [0,1).
func KeyBackoff(failures int32, jitter float64) time.Duration {
	return doubled(keyBackoffBase, keyBackoffMax, failures, jitter)
}

// DisruptBackoff is how long a node is left alone that could not be drained, or did not become well
// at another revision: 1 min, 2 min, 4 min … at most 30 min, and up to a fifth more by jitter in
// [0,1).
func DisruptBackoff(tries int32, jitter float64) time.Duration {
	return doubled(disruptBackoffBase, disruptBackoffMax, tries, jitter)
}

func doubled(base, limit time.Duration, failures int32, jitter float64) time.Duration {
	exponent := math.Min(float64(max(failures, 1)-1), 16)
	wait := math.Min(float64(base)*math.Exp2(exponent), float64(limit))
	return time.Duration(wait * (1 + jitter/5)).Round(time.Millisecond)
}

// Soonest is the shorter of two times after which to look again, of which 0 is never.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
