package mirror

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// EventSource is what is told of; a *resolver.Resolver is one.
type EventSource interface {
	// Reports are the latest pulls for which registries were skipped, the newest first.
	Reports() []resolver.Report
	// Counters are what happened at each registry since the start, by host, and how many requests
	// ended without their bytes.
	Counters() (byHost []resolver.Counter, failures int64)
}

// ReporterOptions of a Reporter.
type ReporterOptions struct {
	// NodeName is the Node that events are about.
	NodeName string
	Files    winos.Files
	// Clock is the host's.
	Clock clock.WithTicker
}

// Reporter tells. Its methods may be called at the same time, Run and Write by one goroutine each.
type Reporter struct {
	ReporterOptions
	news chan struct{}

	mu     sync.Mutex
	source EventSource
	told   map[string]telling // by subject; kept from one Run to the next
	budget budget
	serial int64 // of the last event
}

// NewReporter makes a Reporter, which has nothing to tell before Hear.
func NewReporter(o ReporterOptions) *Reporter {
	return &Reporter{ReporterOptions: o, news: make(chan struct{}, 1), told: map[string]telling{},
		budget: budget{left: burst, since: o.Clock.Now()}}
}

// Hear says what is told of from now on. A nil Reporter hears nothing.
func (h *Reporter) Hear(source EventSource) {
	if h == nil {
		return
	}
	h.mu.Lock()
	h.source = source
	h.mu.Unlock()
	h.Wake()
}

// Wake says that there is news. It returns at once.
func (h *Reporter) Wake() {
	if h == nil {
		return
	}
	select {
	case h.news <- struct{}{}:
	default:
	}
}

func (h *Reporter) listen() EventSource {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.source
}

// budget bounds the events of one node: a mirror that is down is a few, and whoever pulls thousands
// of names that don't exist must not fill the API server.
type budget struct {
	left  int
	since time.Time
}

const (
	burst  = 20
	refill = 5 * time.Minute
)

// take says whether there is one more.
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
