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

// An exporter is a node's, and a node may be hostile.
func TestA53_NoCredentialGoesToANodesMetricsPort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("monitoring/exporter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"bearerToken", "authorization:", "basicAuth", "oauth2", "honorLabels: true"} {
		if strings.Contains(string(text), wrong) {
			t.Errorf("the exporter's monitor has %s", wrong)
		}
	}
	if !strings.Contains(string(text), "honorLabels: false") {
		t.Error("a node may publish series under the labels of others")
	}
}

// The Service of the operator's metrics selects by label, and a kubelet may create mirror pods with any label, port and
// address: such a pod's owner is its Node, as Kubernetes itself demands.
func TestA53_TheTokenGoesToNoPodThatAKubeletMade(t *testing.T) {
	t.Parallel()
	for _, endpoint := range named[*monitoringv1.ServiceMonitor](t, "windows-machine-config-operator").Spec.Endpoints {
		if len(endpoint.RelabelConfigs) == 0 {
			t.Fatal("whatever the Service selects is scraped")
		}
		targets := endpoint.RelabelConfigs[0]
		if targets.Action != "keep" || targets.Regex != "ReplicaSet" || !slices.Equal(targets.SourceLabels,
			[]monitoringv1.LabelName{"__meta_kubernetes_pod_controller_kind"}) {
			t.Errorf("its targets: %+v", targets)
		}
	}
}

// Without a server name, Prometheus expects the target's address in the certificate. A node's certificate is only
// valid for that node's address.
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
		t.Errorf("the cluster makes a key for all nodes: %s", made)
	}
}

// A node's exporter publishes nothing under the names of other exporters or rules. Its targets have both labels
// that rules use to identify the owner of series, because a node can choose any label that the scraped target
// lacks.
func TestA53_ANodePublishesNoSeriesUnderNamesOfOthers(t *testing.T) {
	t.Parallel()
	endpoint := named[*monitoringv1.ServiceMonitor](t, "windows-exporter").Spec.Endpoints[0]
	if len(endpoint.MetricRelabelConfigs) != 1 || endpoint.MetricRelabelConfigs[0].Action != "keep" ||
		!slices.Equal(endpoint.MetricRelabelConfigs[0].SourceLabels, []monitoringv1.LabelName{"__name__"}) {
		t.Fatalf("its series: %+v", endpoint.MetricRelabelConfigs)
	}
	// as Prometheus anchors it
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
		t.Errorf("its targets: %+v", target)
	}
}

// A host with 500 containers and 400 services is below the limits. Prometheus doesn't read an endless response.
func TestA53_WhatANodeSaysToPrometheusIsBounded(t *testing.T) {
	t.Parallel()
	monitor := named[*monitoringv1.ServiceMonitor](t, "windows-exporter").Spec
	const (
		containers, services, processors = 500, 400, 256
		// for the payload's exporter: six of a container's series are about its network; a service has its states,
		// start modes and statuses; each container may have its own adapter
		ofContainer, ofService, ofProcessor, ofAdapter, rest = 18, 25, 17, 13, 1000

		samples = containers*(ofContainer+ofAdapter) + services*ofService + processors*ofProcessor + rest
		line    = 250
	)
	if limit := monitor.SampleLimit; limit == nil || *limit < samples || *limit > 2*samples {
		t.Errorf("samples: %v, and a large host has %d", monitor.SampleLimit, samples)
	}
	body := monitor.BodySizeLimit
	if body == nil {
		t.Fatal("an answer has no limit")
	}
	size, err := resource.ParseQuantity(strings.TrimSuffix(string(*body), "B"))
	if err != nil || size.Value() < samples*line || size.Value() > 4*samples*line {
		t.Errorf("%s of an answer: %v, and that of a large host has %d bytes", *body, err, samples*line)
	}
	// Eight labels are the target's. Windows bounds names of services and adapters by 256 characters.
	for what, limit := range map[string]*uint64{"labels": monitor.LabelLimit,
		"name": monitor.LabelNameLengthLimit, "value": monitor.LabelValueLengthLimit} {
		least := map[string]uint64{"labels": 16, "name": 63, "value": 3 * 256}[what]
		if limit == nil || *limit < least || *limit > 4*least {
			t.Errorf("%s: %v, want at least %d", what, limit, least)
		}
	}
}
