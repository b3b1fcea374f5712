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
	lacks     *prometheus.GaugeVec
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
		lacks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_prerequisite_problems",
			Help: "What keeps hosts from joining, by reason. Absent when all is well.",
		}, []string{"reason"}),
		rejected: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_rejected_settings",
			Help: "What settings ask for and nodes don't get, by reason. Absent when there is nothing.",
		}, []string{"reason"}),
	}
	for _, c := range []prometheus.Collector{m.published, m.retired, m.lacks, m.rejected} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

// problems shows the present problems and no others.
func (m *meters) problems(all []*contract.Problem) { show(m.lacks, all) }

// refusals shows what is left out now and nothing else.
func (m *meters) refusals(all []*contract.Problem) { show(m.rejected, all) }

func show(gauge *prometheus.GaugeVec, all []*contract.Problem) {
	gauge.Reset()
	for _, p := range all {
		gauge.WithLabelValues(string(p.Reason)).Inc()
	}
}
