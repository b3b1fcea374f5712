package settings

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

type meters struct {
	nodes    *prometheus.GaugeVec
	phases   *prometheus.GaugeVec
	failed   prometheus.Gauge
	lacks    *prometheus.GaugeVec
	rejected *prometheus.GaugeVec
	degraded *prometheus.GaugeVec
}

func newMeters(registry prometheus.Registerer) *meters {
	auto := promauto.With(registry)
	return &meters{
		nodes: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_rollout_nodes",
			Help: "Nodes by their state in the rollout of the desired revision.",
		}, []string{"state"}),
		phases: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_rollout_phase",
			Help: "1 for the current phase of the rollout, 0 for the other phases.",
		}, []string{"phase"}),
		failed: auto.NewGauge(prometheus.GaugeOpts{
			Name: "wmco_rollout_failures",
			Help: "Nodes that failed at the desired revision.",
		}),
		lacks: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_prerequisite_problems",
			Help: "Problems that keep hosts from joining, by reason. Absent if there are none.",
		}, []string{"reason"}),
		rejected: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_rejected_settings",
			Help: "Rejected settings, by reason. Absent if there are none.",
		}, []string{"reason"}),
		degraded: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_degraded_problems",
			Help: "Problems that no other metric counts, and that make the WindowsMachineConfig Degraded, by " +
				"reason. Absent if there are none.",
		}, []string{"reason"}),
	}
}

func byReason(gauge *prometheus.GaugeVec, all []*contract.Problem) {
	gauge.Reset()
	for _, p := range all {
		gauge.WithLabelValues(string(p.Reason)).Inc()
	}
}

func (m *meters) show(f Facts, r v1alpha1.RolloutStatus, failed int) {
	byReason(m.lacks, f.Lacks)
	byReason(m.rejected, f.Refused)
	degraded := slices.Clone(f.Troubles)
	for _, entry := range f.Rejected {
		degraded = append(degraded, entry.Problem)
	}
	byReason(m.degraded, degraded)
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
