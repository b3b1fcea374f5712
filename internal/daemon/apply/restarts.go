package apply

import (
	"cmp"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// A service is in a crash loop if it ends maxEnds times within endsWindow. The service manager restarts it after 10,
// 30, 60 and 120 s. So a service that crashes at once reaches this limit within two minutes, and a service that crashes
// once a day never does. When a service is in a crash loop, we start it less and less often, in addition to the service
// manager's restarts.
const (
	maxEnds    = 3
	endsWindow = 5 * time.Minute
	firstRest  = 30 * time.Second
	lastRest   = 4 * time.Minute
	// If a service ends maxEnds times within trialWindow, the trial fails. The window is long because some failing
	// services run for minutes each time. The window is limited, because an administrator may restart a service now and
	// then during a long trial.
	trialWindow = time.Hour
)

// histories detects services that end again and again, even if they are running at each check.
type histories struct {
	now func() time.Time
	of  map[string]*history
}

type history struct {
	// `up` reports that the service was running at the last check, or that we have started it since. `pid` is the
	// process ID at that time, or 0 if the process had already ended.
	up   bool
	pid  uint32
	ends []time.Time
	// `with` is the digest of the inputs of the last start. `started` is the time of that start. `rest` is the pause
	// before the next start.
	with    string
	started time.Time
	rest    time.Duration
	// `tried` reports whether we have started the service since Applier.Try. `stayed` reports whether it has run for
	// VerifyTime since its last start. `fell` lists the times of its ends since Applier.Try.
	tried, stayed bool
	fell          []time.Time
	// crashLooping becomes true when the service has ended maxEnds times within endsWindow. It becomes false when the
	// service has run for endsWindow without an end. The number of recent ends doesn't suffice to decide this, because
	// the pauses between starts make ends less frequent.
	crashLooping bool
}

// `saw` records the state of a service. If the service was up, and is now stopped or has another process, it has ended
// by itself.
func (l *histories) saw(name string, s winos.Service) {
	known := l.of[name]
	switch {
	case l.ended(name, s):
		known.ends = append(known.ends, l.now())
		known.fell = append(known.fell, l.now())
	case known != nil && known.up && winos.Age(l.now(), known.started) >= VerifyTime:
		known.stayed = true
	}
	l.is(name, s.State == winos.ServiceRunning, s.PID)
}

func (l *histories) ended(name string, s winos.Service) bool {
	known := l.of[name]
	return known != nil && known.up && (s.State != winos.ServiceRunning || known.pid != 0 && known.pid != s.PID)
}

// failsTrial reports whether a service that we started in this trial ended right after its start, or too often.
func (l *histories) failsTrial(name string, s winos.Service) bool {
	known := l.of[name]
	if known == nil || !known.tried {
		return false
	}
	known.fell = slices.DeleteFunc(known.fell, func(at time.Time) bool { return winos.Age(l.now(), at) > trialWindow })
	if l.ended(name, s) {
		return !known.stayed || len(known.fell)+1 >= maxEnds
	}
	return len(known.fell) >= maxEnds
}

// `started` records that we started a service with these inputs.
func (l *histories) started(name string, pid uint32, with string) {
	l.is(name, true, pid)
	known := l.of[name]
	if known.with != with {
		known.ends, known.rest, known.crashLooping = nil, 0, false
	}
	known.with, known.started, known.stayed = with, l.now(), false
	if !known.tried {
		known.tried, known.fell = true, nil
	}
	if len(known.ends) < maxEnds {
		known.rest = 0
	} else {
		known.rest = min(max(2*known.rest, firstRest), lastRest)
	}
}

// `stopped` records that we are about to stop a service, so that this end doesn't count.
func (l *histories) stopped(name string) {
	if l.of[name] != nil {
		l.is(name, false, 0)
	}
}

// `held` reports whether a service in a crash loop must not be started now. `with` is the digest of the inputs for this
// start. A service with new inputs may be started at once.
func (l *histories) held(name, with string) bool {
	known := l.of[name]
	return known != nil && known.with == with && winos.Age(l.now(), known.started) < known.rest
}

func (l *histories) is(name string, up bool, pid uint32) {
	if l.of[name] == nil {
		l.of[name] = &history{}
	}
	l.of[name].up, l.of[name].pid = up, pid
}

// CrashLooping returns the fault of a service that is in a crash loop.
func CrashLooping(name string) state.Fault {
	problem := contract.NewProblem(contract.ReasonServiceFailed,
		"service %s ended by itself %d times or more within %s", name, maxEnds, endsWindow)
	return state.Fault{Problem: *problem, About: name, CrashLooping: true}
}

func (l *histories) crashLooping() (all []state.Fault) {
	for name, known := range l.of {
		known.ends = slices.DeleteFunc(known.ends, func(at time.Time) bool {
			return winos.Age(l.now(), at) > endsWindow
		})
		known.crashLooping = len(known.ends) >= maxEnds || known.crashLooping && len(known.ends) > 0
		if known.crashLooping {
			all = append(all, CrashLooping(name))
		}
	}
	slices.SortFunc(all, func(a, b state.Fault) int { return cmp.Compare(a.About, b.About) })
	return all
}
