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
	// NodeName is the Node that events are about.
	NodeName string
	Files    winos.Files
	// Clock is the host's.
	Clock clock.WithTicker
}

// Counters are what happened at each registry since the start, by host, and how many requests
// ended without their bytes; see resolver.Resolver.
type Counters func() (byHost []resolver.Counter, failures int64)

// Reporter makes events and metrics of pulls. Its methods may be called at the same time, Run and
// Write by one goroutine each.
type Reporter struct {
	ReporterOptions
	news   chan struct{}
	budget budget
	serial int64 // of the last event

	mu       sync.Mutex
	counters Counters // nil while there is no resolver
	subjects map[string]*subject
}

// NewReporter makes a Reporter, which has no counters before Count.
func NewReporter(o ReporterOptions) *Reporter {
	return &Reporter{ReporterOptions: o, news: make(chan struct{}, 1), subjects: map[string]*subject{},
		budget: budget{left: burst, since: o.Clock.Now()}}
}

// Count says where the counters are from now on. A nil Reporter ignores it.
func (h *Reporter) Count(counters Counters) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counters = counters
}

// Report takes in a pull for which registries were skipped, and returns at once. A nil Reporter ignores
// it.
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
