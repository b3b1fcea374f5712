package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// longestWindow keeps a window from being more than the time between its starts could sensibly be.
const longestWindow = 7 * 24 * time.Hour

// Window is a time in which nodes may be disturbed, and which comes back.
type Window struct {
	// Start is a cron expression of five fields, such as "0 22 * * 6".
	Start string
	// Duration of the window.
	Duration time.Duration
	// TimeZone of Start, from the IANA database, such as Europe/Berlin; UTC if empty.
	TimeZone string
}

// WindowsOpen says whether one of the windows is open, and if not, when the next one opens. Without
// windows it is always open; a zero time says that none will ever open. A window that can't be
// understood is an error and never open.
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
		if began := schedule.Next(now.Add(-w.Duration)); !began.IsZero() && !began.After(now) {
			return true, time.Time{}, nil
		}
		if begins := schedule.Next(now); !begins.IsZero() && (next.IsZero() || begins.Before(next)) {
			next = begins
		}
	}
	return false, next, err
}

func (w Window) parse() (cron.Schedule, error) {
	if w.Duration <= 0 || w.Duration > longestWindow {
		return nil, fmt.Errorf("window %q: a duration is positive and at most %s", w.Start, longestWindow)
	}
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil || w.TimeZone == "Local" {
		return nil, fmt.Errorf("window %q: %q is no time zone of the IANA database", w.Start, w.TimeZone)
	}
	if strings.Contains(
		w.Start, "=") { // "TZ=…" is a second place for the zone, and panics the parser when nothing follows
		return nil, fmt.Errorf("window %q: the time zone has a field of its own", w.Start)
	}
	schedule, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(w.Start)
	if err != nil {
		return nil, fmt.Errorf("window %q: %w", w.Start, err)
	}
	specified, ok := schedule.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("window %q is not a cron expression of five fields", w.Start)
	}
	specified.Location = zone
	return specified, nil
}
