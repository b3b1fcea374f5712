package policy

import (
	"fmt"
	"time"
)

// Daemon is what is known of a node's daemon while its kubelet is well. A zero time is one that is
// not known.
type Daemon struct {
	// CertificateEnd is when its certificate ends, by its own word.
	CertificateEnd time.Time
	// Owing is since when it neither has the version that it was told nor says why not; zero while
	// it owes no answer.
	Owing time.Time
	// Led is since when this operator looks after hosts. Before, there may have been no API server
	// to answer to.
	Led time.Time
	// Visited is when the host was last walked into to the end, which gave its daemon another
	// certificate.
	Visited time.Time
}

// visitRest is how many times the patience lies between two visits because of a certificate: a
// daemon's word, which may be a lie, has its host walked into.
const visitRest = 12

// Silent says in words why a daemon is taken for dead, or for one that can't speak; empty while it
// is not, and left is then how long it may go on saying nothing, 0 without an end. Patience is how
// long it may take to answer; and half as long it has in any case with an operator that has just
// begun, so that one that was away does not walk into every host for what could not be said
// meanwhile.
func Silent(d Daemon, patience time.Duration, now time.Time) (why string, left time.Duration) {
	due := func(times ...time.Time) (left time.Duration) {
		for _, t := range append(times, d.Led.Add(patience/2)) {
			left = max(left, t.Sub(now))
		}
		return left
	}
	if !d.Owing.IsZero() {
		if left = due(d.Owing.Add(patience)); left <= 0 {
			return fmt.Sprintf("it has not answered since %s to what it was told", d.Owing.UTC().Format(time.RFC3339)),
				0
		}
	}
	if end := d.CertificateEnd; !end.IsZero() && end.After(d.Visited) {
		until := due(end.Add(patience), d.Visited.Add(visitRest*patience))
		if until <= 0 {
			return fmt.Sprintf("its certificate ended at %s, and it has shown no other since",
				end.UTC().Format(time.RFC3339)), 0
		}
		if left == 0 || until < left {
			left = until
		}
	}
	return "", left
}
