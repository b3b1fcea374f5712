package instance

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the metrics of this controller.
type meters struct {
	phaseSeconds *prometheus.HistogramVec
	failures     *prometheus.CounterVec
}

func newMeters(registry prometheus.Registerer) (*meters, error) {
	m := &meters{
		phaseSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "wmco_phase_duration_seconds",
			Help:    "How long hosts took for each phase that they passed.",
			Buckets: []float64{.1, .5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280},
		}, []string{"phase"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wmco_phase_failures_total",
			Help: "Attempts that failed, by phase and reason.",
		}, []string{"phase", "reason"}),
	}
	for _, c := range []prometheus.Collector{m.phaseSeconds, m.failures} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}
