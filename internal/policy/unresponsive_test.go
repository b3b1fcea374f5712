package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/policy"
)

func TestWhenADaemonIsTakenForDead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	since := func(began, seen time.Duration) policy.Since { return policy.Since{Began: ago(began), Seen: ago(seen)} }
	ended := func(end, seen time.Duration) policy.Daemon {
		return policy.Daemon{CertificateEnd: ago(end), CertificateEnded: since(end, seen)}
	}
	joined := func(d policy.Daemon, before time.Duration) policy.Daemon { d.JoinedTime = ago(before); return d }
	awaited := func(d policy.Daemon, long time.Duration) policy.Daemon {
		d.RequestedSince = since(long, long)
		return d
	}
	for name, test := range map[string]struct {
		daemon policy.Daemon
		why    string
		left   time.Duration
	}{
		"it has reported nothing and nothing is awaited": {},
		"a request was sent just now":                    {daemon: policy.Daemon{RequestedSince: since(0, 0)}, left: 5 * time.Minute},
		"a request was sent a while ago": {daemon: policy.Daemon{RequestedSince: since(4*time.Minute, 4*time.Minute)},
			left: time.Minute},
		"it does not answer": {daemon: policy.Daemon{RequestedSince: since(5*time.Minute, 5*time.Minute)},
			why: "not responded since 2026-01-15T11:55:00Z"},
		"the operator was away meanwhile": {daemon: policy.Daemon{RequestedSince: since(time.Hour, 0)},
			left: 150 * time.Second},
		"the operator is back, and it still does not answer": {daemon: policy.Daemon{
			RequestedSince: since(time.Hour, 150*time.Second)}, why: "not responded"},
		"the operator is restarted again and again": {daemon: policy.Daemon{
			RequestedSince: since(time.Hour, time.Minute)}, left: 90 * time.Second},
		"its certificate is valid":       {daemon: policy.Daemon{CertificateEnd: ago(-time.Hour)}, left: time.Hour},
		"its certificate has just ended": {daemon: ended(time.Minute, time.Minute), left: 4 * time.Minute},
		"its certificate has ended": {daemon: ended(5*time.Minute, 5*time.Minute),
			why: "ended at 2026-01-15T11:55:00Z"},
		"its certificate ended while the operator was away": {daemon: ended(time.Hour, time.Minute),
			left: 90 * time.Second},
		"it got another certificate since, and has not reported it yet": {daemon: joined(ended(time.Hour, time.Hour), time.Minute)},
		"it got a certificate that ended soon": {daemon: joined(ended(10*time.Minute, 10*time.Minute), 20*time.Minute),
			left: 40 * time.Minute},
		"it got a certificate that ended soon, and the rest time is over": {
			daemon: joined(ended(10*time.Minute, 10*time.Minute), time.Hour), why: "ended"},
		"a response is awaited, and its certificate ends sooner": {daemon: awaited(ended(4*time.Minute, 4*time.Minute), 0),
			left: time.Minute},
		"a response is awaited, and its certificate ends later": {daemon: awaited(ended(0, 0), 4*time.Minute),
			left: time.Minute},
		"a response is awaited for long, and its certificate is new": {
			daemon: awaited(policy.Daemon{CertificateEnd: ago(-300 * time.Hour)}, time.Hour), why: "not responded"},
		"its certificate ends in a far future": {daemon: policy.Daemon{
			CertificateEnd: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, left: 1<<63 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			why, left := policy.Unresponsive(test.daemon, 5*time.Minute, now)
			if (why == "") != (test.why == "") || !strings.Contains(why, test.why) || left != test.left {
				t.Errorf("%q with %s left; want %q with %s left", why, left, test.why, test.left)
			}
		})
	}
}
