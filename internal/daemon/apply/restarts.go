package apply

import (
	"cmp"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// A service that ends maxEnds times within endsWindow does not stay up: the service manager's own
// restarts come after 10, 30 and 60 s, so a service that crashes at once reaches this within two
// minutes, and one that crashes once a day never does. From then on we start it less and less
// often, beside what the service manager does.
const (
	maxEnds    = 3
	endsWindow = 5 * time.Minute
	firstRest  = 30 * time.Second
	lastRest   = 4 * time.Minute
	// trialWindow is within how long a service ends maxEnds times that fails a trial by that: some run for minutes
	// each time, and an administrator may restart one now and then while a trial waits.
	trialWindow = time.Hour
)

// lives notices services that run whenever one looks, but not for long.
type lives struct {
	now func() time.Time
	of  map[string]*life
}

// life is what is known of one service.
type life struct {
	// up says that it was seen running, or started; pid is its process then, 0 if it was gone again
	// when we looked.
	up   bool
	pid  uint32
	ends []time.Time
	// with is what it was last started with, started when, and rest how long the next start then
	// waits.
	with    string
	started time.Time
	rest    time.Duration
	// tried says that we started it since the last call of Applier.Try, stayed that it was seen to run for VerifyTime
	// since, and fell is when it has ended in that time.
	tried, stayed bool
	fell          []time.Time
	// crashLooping says that it ended maxEnds times within endsWindow, and has not gone for that long
	// without an end since: while it rests between starts, it ends less often.
	crashLooping bool
}

// saw notes how a service is; one that was up and is not, or has another process now, has ended by
// itself meanwhile.
func (l *lives) saw(name string, s winos.Service) {
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

// ended says whether a service that was up has ended since.
func (l *lives) ended(name string, s winos.Service) bool {
	known := l.of[name]
	return known != nil && known.up && (s.State != winos.ServiceRunning || known.pid != 0 && known.pid != s.PID)
}

// failsTrial says whether a service that we started in this trial has ended, now or at the last look, right after its
// start or once too often. One that somebody restarts in a trial that waits for long has not.
func (l *lives) failsTrial(name string, s winos.Service) bool {
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

// started notes that we started a service, with these inputs.
func (l *lives) started(name string, pid uint32, with string) {
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

// stopped notes that we end a service, so that its end is no surprise.
func (l *lives) stopped(name string) {
	if l.of[name] != nil {
		l.is(name, false, 0)
	}
}

// held says whether a service that does not stay up is to be left alone for now. With other inputs
// it is worth a try at once.
func (l *lives) held(name, with string) bool {
	known := l.of[name]
	return known != nil && known.with == with && winos.Age(l.now(), known.started) < known.rest
}

func (l *lives) is(name string, up bool, pid uint32) {
	if l.of[name] == nil {
		l.of[name] = &life{}
	}
	l.of[name].up, l.of[name].pid = up, pid
}

// CrashLooping is the fault of a service that does not stay up.
func CrashLooping(name string) state.Fault {
	problem := contract.NewProblem(contract.ReasonServiceFailed,
		"service %s ended by itself %d times or more within %s", name, maxEnds, endsWindow)
	return state.Fault{Problem: *problem, About: name, CrashLooping: true}
}

// crashLooping are the services that do not stay up.
func (l *lives) crashLooping() (all []state.Fault) {
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
