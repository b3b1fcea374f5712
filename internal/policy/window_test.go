package policy

import (
	"testing"
	"time"
)

func TestWindows(t *testing.T) {
	t.Parallel()
	at := func(text string) time.Time {
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	saturday := Window{Start: "0 22 * * 6", Duration: 4 * time.Hour, TimeZone: "Europe/Berlin"}
	berlin := Window{Start: "30 2 * * *", Duration: time.Hour, TimeZone: "Europe/Berlin"}
	nightly := Window{Start: "30 1 * * *", Duration: time.Hour}
	for name, c := range map[string]struct {
		windows []Window
		now     string
		open    bool
		next    string
		bad     bool
	}{
		"without windows it is always open": {now: "2026-11-21T12:00:00Z", open: true},
		"as it opens": {windows: []Window{saturday}, now: "2026-11-21T21:00:00Z",
			open: true},
		"a moment before": {windows: []Window{saturday}, now: "2026-11-21T20:59:59Z",
			next: "2026-11-21T21:00:00Z"},
		"past midnight": {windows: []Window{saturday}, now: "2026-11-22T00:59:59Z",
			open: true},
		"as it closes": {windows: []Window{saturday}, now: "2026-11-22T01:00:00Z",
			next: "2026-11-28T21:00:00Z"},
		"summer time is an hour earlier in UTC": {windows: []Window{saturday}, now: "2026-07-04T20:00:00Z",
			open: true},
		"a start in the hour that summer time leaves out opens after it": {windows: []Window{berlin},
			now: "2026-03-29T01:30:00Z", open: true},
		"… and not before": {windows: []Window{berlin}, now: "2026-03-29T01:29:59Z", next: "2026-03-29T01:30:00Z"},
		"… and not again the same day": {windows: []Window{berlin}, now: "2026-03-29T02:30:00Z",
			next: "2026-03-30T00:30:00Z"},
		"a start in the hour that comes twice opens with the first": {windows: []Window{berlin},
			now: "2026-10-25T00:30:00Z", open: true},
		"… and not with the second": {windows: []Window{berlin}, now: "2026-10-25T01:30:00Z",
			next: "2026-10-26T01:30:00Z"},
		"a long window over the change is as long as any": {windows: []Window{{Start: "0 22 * * *",
			Duration: 6 * time.Hour, TimeZone: "Europe/Berlin"}}, now: "2026-10-25T01:59:59Z", open: true},
		"the sooner of two": {windows: []Window{saturday, nightly}, now: "2026-11-21T12:00:00Z",
			next: "2026-11-21T21:00:00Z"},
		"one open of two": {windows: []Window{saturday, nightly}, now: "2026-11-24T02:00:00Z",
			open: true},
		"a date that never comes": {windows: []Window{{Start: "0 0 30 2 *", Duration: time.Hour}},
			now: "2026-11-24T02:00:00Z", bad: true},
		"… nor in one of several months": {windows: []Window{{Start: "0 22 31 4,6,9,11 *", Duration: time.Hour}},
			now: "2026-11-24T02:00:00Z", bad: true},
		"… but the weekday also counts, if it is given": {windows: []Window{{Start: "0 0 31 4 1", Duration: time.Hour}},
			now: "2026-11-24T02:00:00Z", next: "2027-04-05T00:00:00Z"},
		"a leap day comes": {windows: []Window{{Start: "0 0 29 2 *", Duration: time.Hour}},
			now: "2026-11-24T02:00:00Z", next: "2028-02-29T00:00:00Z"},
		"a bad one does not close the good one": {windows: []Window{{Start: "x", Duration: time.Hour}, nightly},
			now: "2026-11-24T02:00:00Z", open: true},
		"not cron": {windows: []Window{{Start: "every night", Duration: time.Hour}},
			now: "2026-11-24T02:00:00Z", bad: true},
		"six fields": {windows: []Window{{Start: "0 0 1 * * *", Duration: time.Hour}},
			now: "2026-11-24T02:00:00Z", bad: true},
		"a descriptor": {windows: []Window{{Start: "@every 1s", Duration: time.Hour}},
			now: "2026-11-24T02:00:00Z", bad: true},
		"no duration": {windows: []Window{{Start: "0 0 * * *"}},
			now: "2026-11-24T02:00:00Z", bad: true},
		"a month long": {windows: []Window{{Start: "0 0 * * *", Duration: 720 * time.Hour}},
			now: "2026-11-24T02:00:00Z", bad: true},
		"an invalid time zone": {windows: []Window{{Start: "0 0 * * *", Duration: time.Hour,
			TimeZone: "../etc/passwd"}}, now: "2026-11-24T02:00:00Z", bad: true},
		"the time zone of the operator's process": {windows: []Window{{Start: "0 0 * * *", Duration: time.Hour,
			TimeZone: "Local"}}, now: "2026-11-24T02:00:00Z", bad: true},
		"a zone in the expression is not allowed": {windows: []Window{{Start: "TZ=UTC 0 0 * * *", Duration: time.Hour}},
			now: "2026-11-24T12:00:00Z", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open, next, err := WindowsOpen(c.windows, at(c.now))
			var want time.Time
			if c.next != "" {
				want = at(c.next)
			}
			if open != c.open || !next.Equal(want) || (err != nil) != c.bad {
				t.Errorf("open %v, next %s, %v", open, next, err)
			}
		})
	}
}

func FuzzWindow(f *testing.F) {
	f.Add("0 22 * * 6", "Europe/Berlin", int64(time.Hour))
	f.Add("TZ=", "", int64(1))
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, start, zone string, duration int64) {
		open, next, err := WindowsOpen([]Window{{Start: start, Duration: time.Duration(duration), TimeZone: zone}}, now)
		if err != nil && open {
			t.Error("an invalid window is open")
		}
		if !next.IsZero() && !next.After(now) {
			t.Errorf("the window opens next at %s", next)
		}
	})
}
