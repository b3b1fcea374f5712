package policy_test

import (
	"strings"
	"testing"
	"time"
	"unsafe"

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
		"the operator's clock was ahead when it began": {daemon: policy.Daemon{LeaderSince: ago(-2 * time.Hour),
			RequestedSince: now}, left: 5 * time.Minute},
		"the operator's clock was ahead when it began, and it was away meanwhile": {daemon: policy.Daemon{
			LeaderSince: ago(-2 * time.Hour), RequestedSince: ago(time.Hour)}, left: 150 * time.Second},
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

// setBack is a time as a clock reads it that was set back: the monotonic reading stays.
func setBack(t *testing.T, from time.Time, by time.Duration) time.Time {
	t.Helper()
	moved := from
	*(*uint64)(unsafe.Pointer(&moved)) -= uint64(by/time.Second) << 30 // see package time: nothing else moves one reading
	if moved.Sub(from) != 0 || !moved.Round(0).Equal(from.Round(0).Add(-by)) {
		t.Fatalf("package time keeps its readings otherwise: %s was to become %s earlier, and is %s", from, by, moved)
	}
	return moved
}

func TestAClockThatIsSetMakesNothingLate(t *testing.T) {
	t.Parallel()
	led := time.Now()
	for name, test := range map[string]struct {
		back       time.Duration // what the clock was ahead when the operator began
		led, began time.Duration // before now
		left       time.Duration
	}{
		"it was ahead, and it began just now":        {2 * time.Hour, 3 * time.Minute, 0, 5 * time.Minute},
		"it was ahead, and it began a while ago":     {2 * time.Hour, 3 * time.Minute, 2 * time.Minute, 3 * time.Minute},
		"it was ahead, and it is late":               {2 * time.Hour, 3 * time.Minute, 7 * time.Minute, -2 * time.Minute},
		"it was ahead, and nobody has listened yet":  {2 * time.Hour, time.Minute, time.Hour, 90 * time.Second},
		"it was behind, and it began just now":       {-2 * time.Hour, 3 * time.Minute, 0, 5 * time.Minute},
		"it was behind, and nobody has listened yet": {-2 * time.Hour, time.Minute, time.Hour, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := setBack(t, led.Add(test.led), test.back)
			began := now.Add(-test.began).Round(0) // as the API server keeps it
			if left := policy.Deadline(began, 5*time.Minute, led, 5*time.Minute, now).Sub(now); left != test.left {
				t.Errorf("%s are left, want %s", left, test.left)
			}
		})
	}
}
