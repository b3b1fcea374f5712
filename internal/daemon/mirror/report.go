package mirror

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// ReporterOptions of a Reporter.
type ReporterOptions struct {
	// NodeName is the Node of the events.
	NodeName string
	Files    winos.Files
	// Clock is the host's clock.
	Clock clock.WithTicker
}

// Counters returns the counters of each registry since the start, by host, and the number of failed requests; see
// resolver.Resolver.
type Counters func() (byHost []resolver.Counter, failures int64)

// Reporter creates events and metrics of pulls. Its methods are safe for concurrent use, but only one goroutine may
// call Run, and only one may call Write.
type Reporter struct {
	ReporterOptions
	news   chan struct{}
	budget budget
	serial int64 // of the last event

	mu       sync.Mutex
	counters Counters // nil while there is no resolver
	subjects map[string]*subject
}

// NewReporter returns a Reporter. It has no counters until Count is called.
func NewReporter(o ReporterOptions) *Reporter {
	return &Reporter{ReporterOptions: o, news: make(chan struct{}, 1), subjects: map[string]*subject{},
		budget: budget{left: burst, since: o.Clock.Now()}}
}

// Count sets the source of the counters. A nil Reporter ignores the call.
func (h *Reporter) Count(counters Counters) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counters = counters
}

// Report records a pull that skipped registries, and returns at once. A nil Reporter ignores the call.
func (h *Reporter) Report(r resolver.Report) {
	if h == nil {
		return
	}
	h.file(r)
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// budget limits the events of one node. A mirror that is down causes a few events, but pulls of thousands of
// nonexistent names must not flood the API server.
type budget struct {
	left  int
	since time.Time
}

const (
	burst  = 20
	refill = 5 * time.Minute
)

// take reports whether the budget allows another event, and counts it.
func (b *budget) take(now time.Time) bool {
	if now.Before(b.since) { // the clock was set back
		b.left, b.since = burst, now
	}
	if more := int(now.Sub(b.since) / refill); more > 0 {
		b.left = min(b.left+more, burst)
		b.since = b.since.Add(time.Duration(more) * refill)
	}
	if b.left == 0 {
		return false
	}
	b.left--
	return true
}
