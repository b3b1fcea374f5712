package mirror

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// ReporterOptions of a Reporter.
type ReporterOptions struct {
	// NodeName is the name of the Node that the events are about.
	NodeName string
	Files    winos.Files
	// Clock is the host's clock.
	Clock clock.Clock
}

// Reporter creates events and metrics about pulls. Its methods are safe for concurrent use. Exception: only one
// goroutine may call Run, and only one may call Write.
type Reporter struct {
	ReporterOptions
	news chan struct{}
	// limiter limits the node's events, because pods may request thousands of images that don't exist.
	limiter *rate.Limiter
	serial  int64 // of the last event
	metrics *resolver.Metrics

	mu       sync.Mutex
	subjects map[string]*subject
}

const (
	burst  = 20
	refill = 5 * time.Minute
)

// NewReporter returns a Reporter that has no reports yet.
func NewReporter(o ReporterOptions) *Reporter {
	return &Reporter{ReporterOptions: o, news: make(chan struct{}, 1), subjects: map[string]*subject{},
		metrics: resolver.NewMetrics(), limiter: rate.NewLimiter(rate.Every(refill), burst)}
}

// Report records the report of a pull and returns at once.
func (h *Reporter) Report(r resolver.Report) {
	h.file(r)
	loop.Signal(h.news)
}
