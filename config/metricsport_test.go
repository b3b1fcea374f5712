package config_test

import (
	"os"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
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

// Without a name of its own, Prometheus expects the target's address in the certificate: a node's
// certificate is good at that node's address only.
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
