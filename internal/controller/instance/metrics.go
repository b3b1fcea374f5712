package instance

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the metrics of this controller.
type meters struct {
	phaseSeconds *prometheus.HistogramVec
	failures     *prometheus.CounterVec
	disturbed    *prometheus.HistogramVec
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
		disturbed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "wmco_rollout_disruption_seconds",
			Help:    "How long nodes had a place in the rollout budget, by what for and how it ended.",
			Buckets: []float64{5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560},
		}, []string{"purpose", "result"}),
	}
	for _, c := range []prometheus.Collector{m.phaseSeconds, m.failures, m.disturbed} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}
