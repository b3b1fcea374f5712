package keep

import (
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/contract"
)

// A service that ends maxEnds times within endsWindow does not stay up: the service manager's own restarts come after 10, 30 and 60 s, so a service
// that crashes at once reaches this within two minutes, and one that crashes once a day never does.
const (
	maxEnds    = 3
	endsWindow = 5 * time.Minute
)

// lives notices services that run whenever one looks, but not for long.
type lives struct {
	now func() time.Time
	of  map[string]*life
}

type life struct {
	pid  uint32
	ends []time.Time
}

// saw notes the process of a service; another one than before means that the former ended by itself.
func (l *lives) saw(name string, s winos.Service) {
	if l.changed(name, s) {
		l.of[name].ends = append(l.of[name].ends, l.now())
	}
	l.started(name, s)
}

// changed says whether the process that was there is there no more.
func (l *lives) changed(name string, s winos.Service) bool {
	known := l.of[name]
	return known != nil && known.pid != 0 && known.pid != s.PID
}

// started notes the process of a service that we started.
func (l *lives) started(name string, s winos.Service) {
	if l.of[name] == nil {
		l.of[name] = &life{}
	}
	l.of[name].pid = s.PID
}

// forget expects the service's process to end, because we end it.
func (l *lives) forget(name string) {
	if known := l.of[name]; known != nil {
		known.pid = 0
	}
}

// problems names the services that do not stay up.
func (l *lives) problems() (all []*contract.Problem) {
	for name, known := range l.of {
		known.ends = slices.DeleteFunc(known.ends, func(at time.Time) bool { return l.now().Sub(at) > endsWindow })
		if len(known.ends) >= maxEnds {
			all = append(all, contract.NewProblem(contract.ReasonServiceFailed, "service %s ended by itself %d times or more within %s", name, maxEnds, endsWindow))
		}
	}
	slices.SortFunc(all, func(a, b *contract.Problem) int {
		switch {
		case a.Detail < b.Detail:
			return -1
		case a.Detail > b.Detail:
			return 1
		}
		return 0
	})
	return all
}
