package policy

import (
	"fmt"
	"time"
)

// Daemon is the known state of a node's daemon while its kubelet is healthy. A zero time is unknown.
type Daemon struct {
	// CertificateEnd is when the daemon's certificate ends, as it reports. CertificateEnded is
	// when the operator first saw that this end is past, or zero before the end.
	CertificateEnd   time.Time
	CertificateEnded Since
	// RequestedSince is the start of the time in which the daemon neither has the requested revision nor reports why
	// not, or zero.
	RequestedSince Since
	// JoinedTime is when the host last joined over SSH, which renewed the certificate.
	JoinedTime time.Time
}

// rejoinRest is how many timeouts lie between two joins that an expired certificate causes, because a daemon may report
// a wrong certificate.
const rejoinRest = 12

// Unresponsive returns why a daemon counts as dead or unable to report, or "". If it returns "", left is how
// long the daemon may stay silent, or 0 for no limit. See Since.Left for why a restarted operator doesn't
// join every host again.
func Unresponsive(d Daemon, timeout time.Duration, now time.Time) (why string, left time.Duration) {
	if since := d.RequestedSince; !since.IsZero() {
		if left = since.Left(timeout, timeout/2, now); left <= 0 {
			return "it has not responded since " + since.Began.UTC().Format(time.RFC3339) + " to what was requested", 0
		}
	}
	if end := d.CertificateEnd; !end.IsZero() && end.After(d.JoinedTime) {
		until := end.Sub(now) // once the end is past, this operator must also have seen that for a while
		if ended := d.CertificateEnded; !ended.IsZero() {
			until = ended.Left(timeout, timeout/2, now)
		}
		if until = max(until, d.JoinedTime.Add(rejoinRest*timeout).Sub(now)); until <= 0 {
			return fmt.Sprintf("its certificate ended at %s, and it has shown no other since",
				end.UTC().Format(time.RFC3339)), 0
		}
		if left == 0 || until < left {
			left = until
		}
	}
	return "", left
}
