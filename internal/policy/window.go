package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// longestWindow keeps a window from being more than the time between its starts could sensibly be.
const longestWindow = 7 * 24 * time.Hour

// Window is a time in which nodes may be disrupted, and which comes back.
type Window struct {
	// Start is a cron expression of five fields, such as "0 22 * * 6".
	Start string
	// Duration of the window.
	Duration time.Duration
	// TimeZone of Start, from the IANA database, such as Europe/Berlin; UTC if empty.
	TimeZone string
}

// WindowsOpen says whether one of the windows is open, and if not, when the next one opens. Without
// windows it is always open. A window that is invalid, or whose date never comes, is an error and never open.
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

// starts are the times at which a window opens: those of a wall clock, each once. A time that the
// change to summer time leaves out is that long after the change as it would have been; one that
// comes twice is the first of the two.
type starts struct {
	wall cron.Schedule // by a clock in UTC that shows what clocks in the zone show
	zone *time.Location
}

// longestShift is more than clocks are ever changed by.
const longestShift = 3 * time.Hour

// after is the first start after a time; zero when there is none.
func (s starts) after(t time.Time) (first time.Time) {
	// Around a change, later on the wall clock is not always later: it is looked at on both sides.
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

// shown is what clocks in the zone show at a time, as a time in UTC.
func (s starts) shown(t time.Time) time.Time {
	_, offset := t.In(s.zone).Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// instant is when clocks in the zone show a time.
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
		return starts{}, fmt.Errorf("window %q: %q is no time zone of the IANA database", w.Start, w.TimeZone)
	}
	if strings.Contains(
		w.Start, "=") { // "TZ=…" is a second place for the zone, and panics the parser when nothing follows
		return starts{}, fmt.Errorf("window %q: the time zone has a field of its own", w.Start)
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
	if specified.Next(time.Unix(0, 0).UTC()).IsZero() { // it looks five years ahead, and leap days come within four
		return starts{}, fmt.Errorf("window %q never opens: none of its months has such a day", w.Start)
	}
	return starts{wall: specified, zone: zone}, nil
}
