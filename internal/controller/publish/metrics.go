package publish

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// meters are the metrics of this controller.
type meters struct {
	published *prometheus.CounterVec
	retired   prometheus.Counter
}

func newMeters(registry prometheus.Registerer) (*meters, error) {
	m := &meters{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wmco_services_published_total",
			Help: "Services manifests and their Secrets that were written, by how: created, or replaced because " +
				"something else had changed them.",
		}, []string{"how"}),
		retired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wmco_services_retired_total",
			Help: "Services manifests and their Secrets that were removed because nothing used them, or because " +
				"they were forged.",
		}),
	}
	for _, c := range []prometheus.Collector{m.published, m.retired} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}
