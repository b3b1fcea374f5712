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

	// keyBackoffBase is short, so the operator soon notices that an administrator has authorised the key. keyBackoffMax
	// makes attempts with a refused key rare, because the host may take them for an attack.
	keyBackoffBase = 10 * time.Second
	keyBackoffMax  = 30 * time.Minute

	// disruptBackoffBase lets other nodes get the slot. disruptBackoffMax limits how often pods are moved in vain.
	disruptBackoffBase = time.Minute
	disruptBackoffMax  = 30 * time.Minute
)

// The longest delays, including jitter.
const (
	LongestBackoff        = backoffMax * 6 / 5
	LongestKeyBackoff     = keyBackoffMax * 6 / 5
	LongestDisruptBackoff = disruptBackoffMax * 6 / 5
)

// Backoff returns the delay after n failures in a row: 5 s for the first failure, then 10 s, 20 s … at most 5 min.
// jitter in [0,1) adds up to a fifth, so that hosts that failed at the same time don't retry at the same time.
func Backoff(failures int32, jitter float64) time.Duration {
	return doubled(backoffBase, backoffMax, failures, jitter)
}

// NextAttempt returns when the operator tries a host again: the backoff delay after the end of the phase that failed.
// It returns zero if the last attempt did not fail, or if a new attempt has already begun.
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

// KeyBackoff is the delay between two tries of a key on a joined host. jitter is as in Backoff.
func KeyBackoff(failures int32, jitter float64) time.Duration {
	return doubled(keyBackoffBase, keyBackoffMax, failures, jitter)
}

// DisruptBackoff is the delay until a node whose drain or upgrade failed is disrupted again. jitter is as in Backoff.
func DisruptBackoff(tries int32, jitter float64) time.Duration {
	return doubled(disruptBackoffBase, disruptBackoffMax, tries, jitter)
}

func doubled(base, limit time.Duration, failures int32, jitter float64) time.Duration {
	exponent := math.Min(float64(max(failures, 1)-1), 16)
	wait := math.Min(float64(base)*math.Exp2(exponent), float64(limit))
	return time.Duration(wait * (1 + jitter/5)).Round(time.Millisecond)
}

// Soonest returns the shorter of two delays. 0 means that nothing is due, so Soonest returns the other delay.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
