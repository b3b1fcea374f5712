package settings

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// meters are the metrics of this controller.
type meters struct {
	nodes  *prometheus.GaugeVec
	phases *prometheus.GaugeVec
	failed prometheus.Gauge
	lacks  *prometheus.GaugeVec
}

func newMeters(registry prometheus.Registerer) (*meters, error) {
	m := &meters{
		nodes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_rollout_nodes",
			Help: "Nodes by how they are in the rollout of the desired revision.",
		}, []string{"state"}),
		phases: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_rollout_phase",
			Help: "1 for the phase that the rollout is in, 0 for the others.",
		}, []string{"phase"}),
		failed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "wmco_rollout_failures",
			Help: "Nodes that failed at the desired revision.",
		}),
		lacks: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_prerequisite_problems",
			Help: "What keeps hosts from joining, by reason. Absent when all is well.",
		}, []string{"reason"}),
	}
	for _, c := range []prometheus.Collector{m.nodes, m.phases, m.failed, m.lacks} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

// missing shows the prerequisites that are missing now, and no others.
func (m *meters) missing(all []*contract.Problem) {
	m.lacks.Reset()
	for _, p := range all {
		m.lacks.WithLabelValues(string(p.Reason)).Inc()
	}
}

// show follows the status, and how many nodes failed.
func (m *meters) show(r v1alpha1.RolloutStatus, failed int) {
	for state, count := range map[string]int32{"total": r.Total, "updated": r.Updated, "staged": r.Staged,
		"unavailable": r.Unavailable} {
		m.nodes.WithLabelValues(state).Set(float64(count))
	}
	for _, phase := range []v1alpha1.RolloutPhase{v1alpha1.RolloutIdle, v1alpha1.RolloutProgressing,
		v1alpha1.RolloutWaiting, v1alpha1.RolloutHalted} {
		m.phases.WithLabelValues(string(phase)).Set(float64(count1(r.Phase == phase)))
	}
	m.failed.Set(float64(failed))
}
