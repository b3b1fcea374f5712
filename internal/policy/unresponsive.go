package policy

import (
	"fmt"
	"time"
)

// Daemon is what is known of a node's daemon while its kubelet is well. A zero time is one that is
// not known.
type Daemon struct {
	// CertificateEnd is when its certificate ends, as it reports.
	CertificateEnd time.Time
	// RequestedSince is since when it neither has the revision that was requested nor reports why
	// not; zero while it does.
	RequestedSince time.Time
	// LeaderSince is since when this operator looks after hosts. Before, there may have been no API
	// server to respond to.
	LeaderSince time.Time
	// JoinedTime is when its host was last joined over SSH, which gave it another certificate.
	JoinedTime time.Time
}

// rejoinRest is how many times the timeout lies between two joins because of a certificate: what a
// daemon reports of it may be wrong.
const rejoinRest = 12

// Deadline is when what began at a time and may take a limit is late, as seen now: at the end of that limit, but not
// before this operator has led for half of the daemons' timeout. While there was none, or no API server, daemons could
// neither report nor read what was desired. How long it has led goes by the monotonic readings
// of leaderSince and now: its host's clock may have been wrong when it began, and was set since.
func Deadline(began time.Time, limit time.Duration, leaderSince time.Time, daemonTimeout time.Duration,
	now time.Time) time.Time {
	end, rest := began.Add(limit), daemonTimeout/2-max(0, now.Sub(leaderSince))
	if heard := now.Add(rest); rest > 0 && heard.After(end) {
		return heard
	}
	return end
}

// Unresponsive says why a daemon is taken for dead, or for one that can't report; empty while it is
// not, and left is then how long it may go on without a report, 0 without an end. See Deadline: an operator
// that was away does not join every host again for what could not be reported meanwhile.
func Unresponsive(d Daemon, timeout time.Duration, now time.Time) (why string, left time.Duration) {
	due := func(began time.Time, limit time.Duration) time.Duration {
		return max(0, Deadline(began, limit, d.LeaderSince, timeout, now).Sub(now))
	}
	if since := d.RequestedSince; !since.IsZero() {
		if left = due(since, timeout); left <= 0 {
			return "it has not responded since " + since.UTC().Format(time.RFC3339) + " to what was requested", 0
		}
	}
	if end := d.CertificateEnd; !end.IsZero() && end.After(d.JoinedTime) {
		until := max(due(end, timeout), due(d.JoinedTime, rejoinRest*timeout))
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
