package publish

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windows-nodes/wmco/internal/contract"
)

// meters are the metrics of these controllers.
type meters struct {
	published *prometheus.CounterVec
	retired   prometheus.Counter
	rejected  *prometheus.GaugeVec
}

func newMeters(registry prometheus.Registerer) (*meters, error) {
	m := &meters{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wmco_services_published_total",
			Help: "Services manifests and their Secrets that were written, by how: create, rewrite, or replace " +
				"somebody else's.",
		}, []string{"how"}),
		retired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wmco_services_retired_total",
			Help: "Services manifests and their Secrets that were removed because nothing used them, or because " +
				"they were forged.",
		}),
		rejected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_rejected_settings",
			Help: "Settings that were rejected, by reason. Absent when there are none.",
		}, []string{"reason"}),
	}
	for _, c := range []prometheus.Collector{m.published, m.retired, m.rejected} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

// refusals shows what is left out now and nothing else.
func (m *meters) refusals(all []*contract.Problem) {
	m.rejected.Reset()
	for _, p := range all {
		m.rejected.WithLabelValues(string(p.Reason)).Inc()
	}
}
