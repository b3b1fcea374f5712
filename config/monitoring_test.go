package config_test

import (
	"slices"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
)

// Users' dashboards and rules use these names.
func TestTheRecordingRulesHaveTheNamesThatUsersKnow(t *testing.T) {
	t.Parallel()
	rule := named[*monitoringv1.PrometheusRule](t, "windows-prometheus-k8s-rules")
	if len(rule.Spec.Groups) != 1 || rule.Spec.Groups[0].Name != "windows.rules" {
		t.Fatalf("groups: %+v", rule.Spec.Groups)
	}
	var got []string
	for _, r := range rule.Spec.Groups[0].Rules {
		got = append(got, r.Record)
	}
	want := []string{
		"instance:node_cpu_utilisation:rate1m", "instance:node_cpu:rate:sum", "node_filesystem_size_bytes",
		"node_filesystem_avail_bytes",
		"node_filesystem_free_bytes", "node_network_receive_bytes_total", "node_network_transmit_bytes_total",
		"node_memory_MemAvailable_bytes",
		"node_memory_MemTotal_bytes", "node_cpu_info",
		"node_container_id:kube_pod_container_info:topk", "pod:container_cpu_usage:sum",
		"container_memory_working_set_bytes",
		"pod_interface_network:container_network_receive_bytes:irate5m",
		"pod_interface_network:container_network_transmit_bytes_total:irate5m",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules: %q", got)
	}
}

func TestTheExporterIsScrapedBesideKubelet(t *testing.T) {
	t.Parallel()
	monitor := named[*monitoringv1.ServiceMonitor](t, "windows-exporter").Spec
	service := named[*corev1.Service](t, "windows-exporter")
	if len(service.Spec.Selector) != 0 || service.Spec.Ports[0].Name != "metrics" ||
		service.Spec.Ports[0].Port != 9182 {
		t.Errorf("service: %+v", service.Spec)
	}
	if monitor.ServiceDiscoveryRole == nil || *monitor.ServiceDiscoveryRole != monitoringv1.EndpointSliceRole ||
		!slices.Equal(monitor.NamespaceSelector.MatchNames, []string{"kube-system"}) ||
		monitor.Selector.MatchLabels["k8s-app"] != "kubelet" {
		t.Errorf("targets: %+v", monitor)
	}
	endpoint := monitor.Endpoints[0]
	if endpoint.Port != "https-metrics" || endpoint.Path != "/metrics" || endpoint.HonorLabels ||
		endpoint.Interval != "30s" {
		t.Errorf("endpoint: %+v", endpoint)
	}
	var targets []string
	for _, r := range endpoint.RelabelConfigs {
		targets = append(targets, string(r.Action)+" "+r.TargetLabel)
	}
	if want := []string{"keep ", "replace instance", "replace __address__", "replace job"}; !slices.Equal(targets,
		want) {
		t.Errorf("relabelled: %q", targets)
	}
}
