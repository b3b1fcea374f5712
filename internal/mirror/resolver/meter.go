package resolver

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts pulls by registry.
type Metrics struct {
	prometheus.Gatherer
	failures               prometheus.Counter
	served, bytes, skipped *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]bool // the registries that have their own label
}

// maxKnown limits the labels: a cluster has tens of registries, but a pod's image may name any registry.
const maxKnown = 256

// `others` is the label of all registries beyond maxKnown. No registry can have this name.
const others = "(others)"

// NewMetrics returns metrics that begin at 0.
func NewMetrics() *Metrics {
	registry := prometheus.NewRegistry()
	factory := promauto.With(registry)
	return &Metrics{
		Gatherer: registry, known: map[string]bool{},
		failures: factory.NewCounter(prometheus.CounterOpts{Name: "wicd_resolver_failures_total",
			Help: "Requests of containerd that no registry answered completely, or that the cluster refuses."}),
		served: factory.NewCounterVec(prometheus.CounterOpts{Name: "wicd_resolver_served_total",
			Help: "Requests of containerd that a registry answered."}, []string{"registry"}),
		bytes: factory.NewCounterVec(prometheus.CounterOpts{Name: "wicd_resolver_served_bytes_total",
			Help: "Bytes of manifests and layers that came from a registry."}, []string{"registry"}),
		skipped: factory.NewCounterVec(prometheus.CounterOpts{Name: "wicd_resolver_skipped_total",
			Help: "How often a registry was skipped, by reason."}, []string{"registry", "reason"}),
	}
}

// serve counts requests that a registry answered, and the bytes that containerd received.
func (m *Metrics) serve(host string, requests int, bytes int64) {
	label := m.label(host)
	m.served.WithLabelValues(label).Add(float64(requests))
	m.bytes.WithLabelValues(label).Add(float64(bytes))
}

func (m *Metrics) skip(host string, reason Reason) {
	m.skipped.WithLabelValues(m.label(host), string(reason)).Inc()
}

func (m *Metrics) label(host string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.known[host] && len(m.known) >= maxKnown {
		return others
	}
	m.known[host] = true
	return host
}
