package config_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The exporter runs on a node, and an attacker may control the node. So Prometheus must not send it credentials.
func TestA53_NoCredentialGoesToANodesMetricsPort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("monitoring/exporter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"bearerToken", "authorization:", "basicAuth", "oauth2", "honorLabels: true"} {
		if strings.Contains(string(text), wrong) {
			t.Errorf("the exporter's ServiceMonitor has %s", wrong)
		}
	}
	if !strings.Contains(string(text), "honorLabels: false") {
		t.Error("a node could publish series with the labels of other targets")
	}
}

// The Service of the operator's metrics selects pods by a label. A kubelet may create mirror pods with any label,
// port and address. Kubernetes demands that such a pod has its Node as owner, so monitoring can exclude it.
func TestA53_TheTokenGoesToNoPodThatAKubeletMade(t *testing.T) {
	t.Parallel()
	for _, endpoint := range named[*monitoringv1.ServiceMonitor](t, "windows-machine-config-operator").Spec.Endpoints {
		if len(endpoint.RelabelConfigs) == 0 {
			t.Fatal("Prometheus scrapes every pod that the Service selects")
		}
		targets := endpoint.RelabelConfigs[0]
		if targets.Action != "keep" || targets.Regex != "ReplicaSet" || !slices.Equal(targets.SourceLabels,
			[]monitoringv1.LabelName{"__meta_kubernetes_pod_controller_kind"}) {
			t.Errorf("the relabelings are %+v", targets)
		}
	}
}

// Without a server name, Prometheus expects the target's address in the certificate. A node's certificate is valid
// only for that node's address.
func TestA53_ANodesMetricsCountOnlyWithThatNodesCertificate(t *testing.T) {
	t.Parallel()
	endpoint := named[*monitoringv1.ServiceMonitor](t, "windows-exporter").Spec.Endpoints[0]
	if endpoint.TLSConfig == nil || endpoint.TLSConfig.ServerName != nil ||
		endpoint.TLSConfig.InsecureSkipVerify != nil ||
		endpoint.TLSConfig.CAFile != "/etc/prometheus/configmaps/kubelet-serving-ca-bundle/ca-bundle.crt" {
		t.Errorf("TLS: %+v", endpoint.TLSConfig)
	}
	service := named[*corev1.Service](t, "windows-exporter")
	if made := service.Annotations["service.beta.openshift.io/serving-cert-secret-name"]; made != "" {
		t.Errorf("the cluster creates one key for all nodes: %s", made)
	}
}

// A node's exporter must not publish series under the names of other exporters or rules. Rules find the source of a
// series by two labels. Prometheus must set both at the target: if one is missing there, a node can set it.
func TestA53_ANodePublishesNoSeriesUnderNamesOfOthers(t *testing.T) {
	t.Parallel()
	endpoint := named[*monitoringv1.ServiceMonitor](t, "windows-exporter").Spec.Endpoints[0]
	if len(endpoint.MetricRelabelConfigs) != 1 || endpoint.MetricRelabelConfigs[0].Action != "keep" ||
		!slices.Equal(endpoint.MetricRelabelConfigs[0].SourceLabels, []monitoringv1.LabelName{"__name__"}) {
		t.Fatalf("the metric relabelings are %+v", endpoint.MetricRelabelConfigs)
	}
	// Prometheus anchors the expression in the same way.
	keeps := regexp.MustCompile("^(?s:" + endpoint.MetricRelabelConfigs[0].Regex + ")$")
	for name, want := range map[string]bool{
		"windows_cpu_time_total": true, "windows_exporter_build_info": true, "wicd_resolver_failures_total": true,
		"wmco_prerequisite_problems": false, "kube_pod_info": false, "kubelet_running_pods": false, "up": false,
		"container_memory_working_set_bytes": false, "node_filesystem_size_bytes": false, "ALERTS": false,
		"windows_x:container_memory": false,
	} {
		if keeps.MatchString(name) != want {
			t.Errorf("%s is kept: %t", name, !want)
		}
	}
	target := endpoint.RelabelConfigs[0]
	if target.Action != "keep" || target.Regex != "Node;windows" || !slices.Equal(target.SourceLabels,
		[]monitoringv1.LabelName{"__meta_kubernetes_endpointslice_address_target_kind",
			"__meta_kubernetes_node_label_kubernetes_io_os"}) {
		t.Errorf("the relabelings are %+v", target)
	}
}

// The limits must allow a host with 500 containers and 400 services. Without limits, Prometheus would read an endless
// response.
func TestA53_WhatANodeSaysToPrometheusIsBounded(t *testing.T) {
	t.Parallel()
	monitor := named[*monitoringv1.ServiceMonitor](t, "windows-exporter").Spec
	const (
		containers, services, processors = 500, 400, 256
		// The number of series in the payload's exporter: six series of a container are about its network. A service
		// has series for its states, start modes and statuses. Each container may have its own adapter.
		ofContainer, ofService, ofProcessor, ofAdapter, rest = 18, 25, 17, 13, 1000

		samples = containers*(ofContainer+ofAdapter) + services*ofService + processors*ofProcessor + rest
		line    = 250
	)
	if limit := monitor.SampleLimit; limit == nil || *limit < samples || *limit > 2*samples {
		t.Errorf("the sample limit is %v, but a large host has %d samples", monitor.SampleLimit, samples)
	}
	body := monitor.BodySizeLimit
	if body == nil {
		t.Fatal("the size of a response has no limit")
	}
	size, err := resource.ParseQuantity(strings.TrimSuffix(string(*body), "B"))
	if err != nil || size.Value() < samples*line || size.Value() > 4*samples*line {
		t.Errorf("the size limit %s (%v) does not fit a large host with %d bytes", *body, err, samples*line)
	}
	// The target adds eight labels. Windows limits the names of services and adapters to 256 characters.
	for what, limit := range map[string]*uint64{"labels": monitor.LabelLimit,
		"name": monitor.LabelNameLengthLimit, "value": monitor.LabelValueLengthLimit} {
		least := map[string]uint64{"labels": 16, "name": 63, "value": 3 * 256}[what]
		if limit == nil || *limit < least || *limit > 4*least {
			t.Errorf("%s: %v, want at least %d", what, limit, least)
		}
	}
}
