package instance

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

type meters struct {
	phaseSeconds *prometheus.HistogramVec
	failures     *prometheus.CounterVec
	disrupted    *prometheus.HistogramVec
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
		disrupted: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "wmco_rollout_disruption_seconds",
			Help:    "How long nodes held a slot in the rollout budget, by purpose and outcome.",
			Buckets: []float64{5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560},
		}, []string{"purpose", "result"}),
	}
	for _, c := range []prometheus.Collector{m.phaseSeconds, m.failures, m.disrupted} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

// scrapeTimeout limits how long a scrape waits for the caches to be filled. Reading from them takes only milliseconds.
const scrapeTimeout = 5 * time.Second

// instances is a prometheus.Collector. It reads all WindowsInstances from the caches at each scrape.
type instances struct {
	parts *journey.Parts

	info, ready, updated, unresponsive, reboot, certificate *prometheus.Desc
}

func newInstances(parts *journey.Parts) *instances {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"windows_instance", "node"}, labels...), nil)
	}
	return &instances{parts: parts,
		info: describe("wmco_instance_info", "1, with the phase of an instance, and why it waits or fails.",
			"phase", "reason", "code"),
		ready: describe("wmco_instance_ready",
			"1 when an instance is a node at its desired revision and Ready, else 0."),
		updated: describe("wmco_instance_updated",
			"1 when a host has the revision that it should have, else 0."),
		unresponsive: describe("wmco_instance_daemon_unresponsive",
			"1 while a daemon does not respond, was stopped, or has an expired certificate, else 0."),
		reboot: describe("wmco_instance_reboot_requested",
			"1 while a reboot of the host is requested or pending, else 0."),
		certificate: describe("wmco_instance_daemon_certificate_expiry_timestamp_seconds",
			"When the daemon's client certificate expires, as it reports it."),
	}
}

func (i *instances) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{i.info, i.ready, i.updated, i.unresponsive, i.reboot, i.certificate} {
		out <- d
	}
}

func (i *instances) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	list, nodes := &v1alpha1.WindowsInstanceList{}, &corev1.NodeList{}
	err := i.parts.Client.List(ctx, list, client.InNamespace(i.parts.Namespace), client.UnsafeDisableDeepCopy)
	if err == nil {
		err = i.parts.Client.List(ctx, nodes, client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)},
			client.UnsafeDisableDeepCopy)
	}
	// The caches are not filled yet. Don't send an invalid metric, because it would make the whole scrape fail.
	if err != nil {
		return
	}
	byName := map[string]*corev1.Node{}
	for n := range nodes.Items {
		byName[nodes.Items[n].Name] = &nodes.Items[n]
	}
	for n := range list.Items {
		instance := &list.Items[n]
		node := &corev1.Node{}
		if found := byName[instance.Status.NodeName]; found != nil && instance.Status.NodeUID != "" {
			node = found
		}
		i.collect(out, instance, node)
	}
}

// collect collects the metrics of one instance. node is its Node, or an empty Node. The label `node` is empty until the
// operator has adopted a Node, and keeps its value while the host joins again.
func (i *instances) collect(out chan<- prometheus.Metric, instance *v1alpha1.WindowsInstance, node *corev1.Node) {
	status, name := &instance.Status, ""
	if status.NodeUID != "" || status.Joined() {
		name = status.NodeName
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value,
			append([]string{instance.Name, name}, labels...)...)
	}
	truth := func(d *prometheus.Desc, holds bool) {
		value := 0.0
		if holds {
			value = 1
		}
		gauge(d, value)
	}
	code := ""
	if reason := contract.Reason(status.Reason()); reason != "" {
		code = reason.Code()
	}
	gauge(i.info, 1, string(status.Phase), status.Reason(), code)
	if !instance.Spec.PreflightOnly { // preflight-only hosts never become nodes
		truth(i.ready, meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady))
		// While a node waits for a slot or for its next try, both revisions are equal, although an upgrade is pending.
		truth(i.updated, status.Revision != "" && status.Revision == status.DesiredRevision && status.Upgrade() == nil)
	}
	truth(i.unresponsive, i.hasDeadDaemon(instance, node))
	requested := false
	for _, key := range []string{contract.RebootRequestedAnnotation, contract.RebootRequiredAnnotation,
		contract.RebootPendingAnnotation} {
		_, set := node.Annotations[key]
		requested = requested || set
	}
	truth(i.reboot, requested || status.Reason() == string(contract.ReasonRebooting))
	if end, err := time.Parse(time.RFC3339, node.Annotations[contract.CertificateEndAnnotation]); err == nil {
		gauge(i.certificate, float64(end.Unix()))
	}
}

// hasDeadDaemon reports whether a daemon does not respond, even if the status shows the reason of a failed attempt.
func (i *instances) hasDeadDaemon(instance *v1alpha1.WindowsInstance, node *corev1.Node) bool {
	status := &instance.Status
	if status.Reason() == string(contract.ReasonDaemonUnresponsive) {
		return true
	}
	if !journey.HasJoined(status) || instance.Spec.Paused {
		return false
	}
	problem, _ := i.parts.Daemons.Unresponsive(instance, node)
	return problem != nil || i.parts.Daemons.IsSilent(instance, node)
}
