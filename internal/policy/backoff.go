package policy

import (
	"hash/fnv"
	"math"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

const (
	backoffBase = 5 * time.Second
	backoffMax  = 5 * time.Minute

	// keyBackoffBase allows a quick retry after the administrator authorises a key. keyBackoffMax makes attempts
	// with a refused key rare, because they look like an attack to the host.
	keyBackoffBase = 10 * time.Second
	keyBackoffMax  = 30 * time.Minute

	// disruptBackoffBase lets other nodes go first. disruptBackoffMax limits how often pods are moved without
	// success.
	disruptBackoffBase = time.Minute
	disruptBackoffMax  = 30 * time.Minute
)

// The maximum delays, including jitter.
const (
	LongestBackoff        = backoffMax * 6 / 5
	LongestKeyBackoff     = keyBackoffMax * 6 / 5
	LongestDisruptBackoff = disruptBackoffMax * 6 / 5
)

// Backoff returns the delay after the n-th failure in a row, from n = 1: 5 s, 10 s, 20 s … at most 5 min.
// jitter in [0,1) adds up to a fifth, so that hosts that failed together don't retry together.
func Backoff(failures int32, jitter float64) time.Duration {
	return doubled(backoffBase, backoffMax, failures, jitter)
}

// NextAttempt returns when the operator tries a host again after a failed attempt: a pause after the end of the phase
// that failed. It is zero if the last attempt did not fail, or if another attempt has begun.
func NextAttempt(instance *v1alpha1.WindowsInstance) time.Time {
	phases, failures := instance.Status.Phases, instance.Status.Failures
	if failures == 0 || len(phases) == 0 || phases[len(phases)-1].Milliseconds == nil {
		return time.Time{}
	}
	last, hash := phases[len(phases)-1], fnv.New32a()
	_, _ = hash.Write([]byte(instance.UID)) // never fails
	return last.StartTime.Add(time.Duration(*last.Milliseconds)*time.Millisecond +
		Backoff(failures, float64(hash.Sum32())/(1<<32)))
}

// KeyBackoff returns the delay before the operator checks again whether a joined host accepts a key: 10 s, 20 s, 40 s
// … at most 30 min, plus up to a fifth by jitter in [0,1).
func KeyBackoff(failures int32, jitter float64) time.Duration {
	return doubled(keyBackoffBase, keyBackoffMax, failures, jitter)
}

// DisruptBackoff returns the delay before the next disruption of a node that could not be drained, or that failed at
// another revision: 1 min, 2 min, 4 min … at most 30 min, plus up to a fifth by jitter in [0,1).
func DisruptBackoff(tries int32, jitter float64) time.Duration {
	return doubled(disruptBackoffBase, disruptBackoffMax, tries, jitter)
}

func doubled(base, limit time.Duration, failures int32, jitter float64) time.Duration {
	exponent := math.Min(float64(max(failures, 1)-1), 16)
	wait := math.Min(float64(base)*math.Exp2(exponent), float64(limit))
	return time.Duration(wait * (1 + jitter/5)).Round(time.Millisecond)
}

// Soonest returns the shorter of two delays. 0 means never.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
