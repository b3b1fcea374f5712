package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const longestWindow = 7 * 24 * time.Hour

// Window is a recurring period during which nodes may be disrupted.
type Window struct {
	// Start is a cron expression of five fields, such as "0 22 * * 6".
	Start    string
	Duration time.Duration
	// TimeZone is the time zone of Start, as a name from the IANA database such as Europe/Berlin. Empty means UTC.
	TimeZone string
}

// WindowsOpen reports whether any window is open. If no window is open, the result `next` is when one opens, and err
// reports a window that is invalid or never opens. Without any windows, `open` is true.
func WindowsOpen(windows []Window, now time.Time) (open bool, next time.Time, err error) {
	if len(windows) == 0 {
		return true, time.Time{}, nil
	}
	for _, w := range windows {
		schedule, problem := w.parse()
		if problem != nil {
			err = problem
			continue
		}
		// A window that began after now-Duration, and not after now, is still open.
		if began := schedule.after(now.Add(-w.Duration)); !began.IsZero() && !began.After(now) {
			return true, time.Time{}, nil
		}
		if begins := schedule.after(now); !begins.IsZero() && (next.IsZero() || begins.Before(next)) {
			next = begins
		}
	}
	return false, next, err
}

// starts computes the opening times of a window, which are wall-clock times. If the change to summer time skips an
// opening time, the window opens later. For example, if the clocks change from 02:00 to 03:00, a window at 02:30 opens
// at 03:30. If an opening time occurs twice, because clocks are set back, only the first one counts.
type starts struct {
	wall cron.Schedule // in UTC, but with the zone's wall-clock time
	zone *time.Location
}

// longestShift is longer than the shift of any change of clocks.
const longestShift = 3 * time.Hour

func (s starts) after(t time.Time) (first time.Time) {
	// Around a change of clocks, a later wall-clock time may be an earlier instant, so look at both sides.
	for wall := s.wall.Next(s.shown(t).Add(-longestShift)); !wall.IsZero(); wall = s.wall.Next(wall) {
		if !first.IsZero() && wall.After(s.shown(first).Add(longestShift)) {
			return first
		}
		if at := s.instant(wall); at.After(t) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// The method `shown` converts a time to the zone's wall-clock time, represented as a time in UTC.
func (s starts) shown(t time.Time) time.Time {
	_, offset := t.In(s.zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// The method `instant` returns the time when the zone's clocks show the given wall-clock time.
func (s starts) instant(wall time.Time) time.Time {
	by := func(near time.Time) time.Time {
		_, offset := near.In(s.zone).Zone()
		return wall.Add(-time.Duration(offset) * time.Second)
	}
	const day = 24 * time.Hour
	before, after := by(wall.Add(-day)), by(wall.Add(day))
	if s.shown(before).Equal(wall) || !s.shown(after).Equal(wall) {
		return before
	}
	return after
}

func (w Window) parse() (starts, error) {
	if w.Duration <= 0 || w.Duration > longestWindow {
		return starts{}, fmt.Errorf("window %q: a duration is positive and at most %s", w.Start, longestWindow)
	}
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil || w.TimeZone == "Local" {
		return starts{}, fmt.Errorf("window %q: %q is not a time zone of the IANA database", w.Start, w.TimeZone)
	}
	if strings.Contains(
		w.Start, "=") { // "TZ=…" sets the zone a second time. If nothing follows it, the parser panics.
		return starts{}, fmt.Errorf("window %q: set the time zone in timeZone, not in the cron expression", w.Start)
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(w.Start)
	if err != nil {
		return starts{}, fmt.Errorf("window %q: %w", w.Start, err)
	}
	specified, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return starts{}, fmt.Errorf("window %q is not a cron expression of five fields", w.Start)
	}
	specified.Location = time.UTC
	if specified.Next(time.Unix(0, 0).UTC()).IsZero() { // The parser looks five years ahead.
		return starts{}, fmt.Errorf("window %q never opens: none of its months has such a day", w.Start)
	}
	return starts{wall: specified, zone: zone}, nil
}
