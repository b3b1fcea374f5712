package keep

import (
	"cmp"
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

// life is what is known of one service.
type life struct {
	// up says that it was seen running, or started; pid is its process then, 0 if it was gone again when we looked.
	up   bool
	pid  uint32
	ends []time.Time
}

// saw notes how a service is; one that was up and is not, or has another process now, has ended by itself meanwhile.
func (l *lives) saw(name string, s winos.Service) {
	if l.ended(name, s) {
		l.of[name].ends = append(l.of[name].ends, l.now())
	}
	l.is(name, s.State == winos.ServiceRunning, s.PID)
}

// ended says whether a service that was up has ended since.
func (l *lives) ended(name string, s winos.Service) bool {
	known := l.of[name]
	return known != nil && known.up && (s.State != winos.ServiceRunning || known.pid != 0 && known.pid != s.PID)
}

// started notes that we started a service.
func (l *lives) started(name string, pid uint32) { l.is(name, true, pid) }

// stopped notes that we end a service, so that its end is no surprise.
func (l *lives) stopped(name string) {
	if l.of[name] != nil {
		l.is(name, false, 0)
	}
}

func (l *lives) is(name string, up bool, pid uint32) {
	if l.of[name] == nil {
		l.of[name] = &life{}
	}
	l.of[name].up, l.of[name].pid = up, pid
}

// problems names the services that do not stay up.
func (l *lives) problems() (all []*contract.Problem) {
	for name, known := range l.of {
		known.ends = slices.DeleteFunc(known.ends, func(at time.Time) bool { return l.now().Sub(at) > endsWindow })
		if len(known.ends) >= maxEnds {
			all = append(all, contract.NewProblem(contract.ReasonServiceFailed, "service %s ended by itself %d times or more within %s", name, maxEnds, endsWindow))
		}
	}
	slices.SortFunc(all, func(a, b *contract.Problem) int { return cmp.Compare(a.Detail, b.Detail) })
	return all
}
