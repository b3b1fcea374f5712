package publish

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type meters struct {
	published *prometheus.CounterVec
	retired   prometheus.Counter
}

func newMeters(registry prometheus.Registerer) *meters {
	auto := promauto.With(registry)
	return &meters{
		published: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "wmco_services_published_total",
			Help: "Services manifests and their Secrets that were written, by how: created, or replaced because " +
				"something else had changed them.",
		}, []string{"how"}),
		retired: auto.NewCounter(prometheus.CounterOpts{
			Name: "wmco_services_retired_total",
			Help: "Services manifests and their Secrets that were removed because nothing used them, or because " +
				"they were forged.",
		}),
	}
}
