package policy

import (
	"fmt"
	"time"
)

// Daemon is what the operator knows about a node's daemon while the node's kubelet is healthy. Zero means unknown.
type Daemon struct {
	// CertificateEnd is when the daemon's certificate expires, as the daemon reports. CertificateEnded is when the
	// operator first saw that the certificate has expired, or zero before that.
	CertificateEnd   time.Time
	CertificateEnded Since
	// RequestedSince is the start of the time during which the daemon neither has the requested revision nor reports
	// why not. It is zero if the daemon has the revision or reports a reason.
	RequestedSince Since
	// JoinedTime is when the host last joined over SSH. The join also renewed the certificate.
	JoinedTime time.Time
}

// rejoinRest is the minimum time, as a multiple of the timeout, between two joins because of an expired certificate. A
// daemon may report a wrong certificate, so the joins might not help.
const rejoinRest = 12

// Unresponsive returns why a daemon counts as dead or unable to report, or "". If it returns "", the result `left` is
// how much longer the daemon may report nothing, or 0 if there is no limit. Since.Left explains why a restarted
// operator doesn't join every host again.
func Unresponsive(d Daemon, timeout time.Duration, now time.Time) (why string, left time.Duration) {
	if since := d.RequestedSince; !since.IsZero() {
		if left = since.Left(timeout, timeout/2, now); left <= 0 {
			return "it has not responded since " + since.Began.UTC().Format(time.RFC3339) + " to what was requested", 0
		}
	}
	if end := d.CertificateEnd; !end.IsZero() && end.After(d.JoinedTime) {
		until := end.Sub(now) // after the end, CertificateEnded counts instead
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
