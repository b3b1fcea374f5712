package policy

import (
	"fmt"
	"time"
)

// Daemon is what is known of a node's daemon while its kubelet is well. A zero time is one that is
// not known.
type Daemon struct {
	// CertificateEnd is when its certificate ends, as it reports; CertificateEnded is zero before.
	CertificateEnd   time.Time
	CertificateEnded Since
	// RequestedSince is since when it neither has the revision that was requested nor reports why
	// not; zero while it does.
	RequestedSince Since
	// JoinedTime is when its host was last joined over SSH, which gave it another certificate.
	JoinedTime time.Time
}

// rejoinRest is how many times the timeout lies between two joins because of a certificate: what a
// daemon reports of it may be wrong.
const rejoinRest = 12

// Unresponsive says why a daemon is taken for dead, or for one that can't report; empty while it is
// not, and left is then how long it may go on without a report, 0 without an end. An operator that was away does not
// join every host again for what could not be reported meanwhile: see Since.Left.
func Unresponsive(d Daemon, timeout time.Duration, now time.Time) (why string, left time.Duration) {
	if since := d.RequestedSince; !since.IsZero() {
		if left = since.Left(timeout, timeout/2, now); left <= 0 {
			return "it has not responded since " + since.Began.UTC().Format(time.RFC3339) + " to what was requested", 0
		}
	}
	if end := d.CertificateEnd; !end.IsZero() && end.After(d.JoinedTime) {
		until := end.Sub(now) // that it has ended is to be seen, too
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
