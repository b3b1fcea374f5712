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
	long := ago(30 * 24 * time.Hour)
	for name, test := range map[string]struct {
		daemon policy.Daemon
		why    string
		left   time.Duration
	}{
		"it has reported nothing and nothing is awaited": {daemon: policy.Daemon{LeaderSince: long}},
		"it was told something just now": {daemon: policy.Daemon{LeaderSince: long, RequestedSince: now},
			left: 5 * time.Minute},
		"it was told something a while ago": {daemon: policy.Daemon{LeaderSince: long,
			RequestedSince: ago(4 * time.Minute)}, left: time.Minute},
		"it does not answer": {daemon: policy.Daemon{LeaderSince: long,
			RequestedSince: ago(5 * time.Minute)}, why: "not responded since 2026-01-15T11:55:00Z"},
		"the clock of who told it was ahead": {daemon: policy.Daemon{LeaderSince: long,
			RequestedSince: ago(-time.Minute)}, left: 6 * time.Minute},
		"the operator was away meanwhile": {daemon: policy.Daemon{LeaderSince: now,
			RequestedSince: ago(time.Hour)}, left: 150 * time.Second},
		"the operator is back, and it still does not answer": {daemon: policy.Daemon{LeaderSince: ago(150 * time.Second),
			RequestedSince: ago(time.Hour)}, why: "not responded"},
		"the operator is restarted again and again": {daemon: policy.Daemon{LeaderSince: ago(time.Minute),
			RequestedSince: ago(time.Hour)}, left: 90 * time.Second},
		"its certificate holds": {daemon: policy.Daemon{LeaderSince: long,
			CertificateEnd: ago(-time.Hour)}, left: 65 * time.Minute},
		"its certificate has just ended": {daemon: policy.Daemon{LeaderSince: long,
			CertificateEnd: ago(time.Minute)}, left: 4 * time.Minute},
		"its certificate has ended": {daemon: policy.Daemon{LeaderSince: long,
			CertificateEnd: ago(5 * time.Minute)}, why: "ended at 2026-01-15T11:55:00Z"},
		"its certificate ended while the operator was away": {daemon: policy.Daemon{LeaderSince: ago(time.Minute),
			CertificateEnd: ago(time.Hour)}, left: 90 * time.Second},
		"it was given another since, and has yet to say so": {daemon: policy.Daemon{LeaderSince: long,
			CertificateEnd: ago(time.Hour), JoinedTime: ago(time.Minute)}},
		"it was given one that ended soon": {daemon: policy.Daemon{LeaderSince: long,
			CertificateEnd: ago(10 * time.Minute), JoinedTime: ago(20 * time.Minute)}, left: 40 * time.Minute},
		"it was given one that ended soon, and the host rested": {daemon: policy.Daemon{LeaderSince: long,
			CertificateEnd: ago(10 * time.Minute), JoinedTime: ago(time.Hour)}, why: "ended"},
		"a response is awaited, and its certificate ends sooner": {daemon: policy.Daemon{LeaderSince: long, RequestedSince: now,
			CertificateEnd: ago(4 * time.Minute)}, left: time.Minute},
		"a response is awaited, and its certificate ends later": {daemon: policy.Daemon{LeaderSince: long,
			RequestedSince: ago(4 * time.Minute), CertificateEnd: ago(0)}, left: time.Minute},
		"a response is awaited for long, and its certificate is new": {daemon: policy.Daemon{LeaderSince: long,
			RequestedSince: ago(time.Hour), CertificateEnd: ago(-300 * time.Hour)}, why: "not responded"},
		"its certificate ends in a far future": {daemon: policy.Daemon{LeaderSince: long,
			CertificateEnd: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}, left: 1<<63 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			why, left := policy.Unresponsive(test.daemon, 5*time.Minute, now)
			if (why == "") != (test.why == "") || !strings.Contains(why, test.why) || left != test.left {
				t.Errorf("%q, left %s; want %q, left %s", why, left, test.why, test.left)
			}
		})
	}
}
