package prometheus

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// relabelings returns the relabelings of the operator's ServiceMonitor, as Prometheus parses them.
func relabelings(t *testing.T) []*relabel.Config {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "config", "monitoring", "operator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var monitor struct {
		Spec struct {
			Endpoints []struct {
				Relabelings []struct {
					Action, Regex string
					SourceLabels  []string `yaml:"sourceLabels"`
				}
			}
		}
	}
	if err = yaml.Unmarshal(content, &monitor); err != nil || len(monitor.Spec.Endpoints) != 1 {
		t.Fatalf("the ServiceMonitor has %d endpoints: %v", len(monitor.Spec.Endpoints), err)
	}
	var all []*relabel.Config
	for _, r := range monitor.Spec.Endpoints[0].Relabelings {
		text, err := yaml.Marshal(map[string]any{"action": r.Action, "regex": r.Regex, "source_labels": r.SourceLabels})
		if err != nil {
			t.Fatal(err)
		}
		config := &relabel.Config{}
		if err = yaml.Unmarshal(text, config); err != nil {
			t.Fatal(err)
		}
		all = append(all, config)
	}
	return all
}

// An attacker's kubelet can create a mirror pod that the Service of the operator's metrics selects. Prometheus must not
// scrape this pod, because it would send its token. The labels in this test are those that Prometheus has for a pod,
// for each role that finds endpoints.
func TestA53_PrometheusShowsItsTokenToThePodOfTheDeploymentOnly(t *testing.T) {
	t.Parallel()
	configs := relabelings(t)
	for name, test := range map[string]struct {
		kind, node string
		want       bool
	}{
		"the operator's pod":                {kind: "ReplicaSet", node: "control-plane-0", want: true},
		"a mirror pod of a node":            {kind: "Node", node: "win-0"},
		"a pod or an address without owner": {node: "win-0"},
		"what only begins with the word":    {kind: "ReplicaSets", node: "win-0"},
	} {
		for _, role := range []string{"endpoint", "endpointslice"} {
			found := map[string]string{
				"__address__": "10.0.0.7:9182",
				"__meta_kubernetes_pod_label_app_kubernetes_io_name": "windows-machine-config-operator",
				"__meta_kubernetes_pod_container_port_name":          "metrics",
				"__meta_kubernetes_pod_node_name":                    test.node,
				"__meta_kubernetes_" + role + "_port_name":           "https",
			}
			if test.kind != "" {
				found["__meta_kubernetes_pod_controller_kind"] = test.kind
			}
			target := labels.NewBuilder(labels.FromMap(found))
			if got := relabel.ProcessBuilder(target, configs...); got != test.want {
				t.Errorf("%s, found through its %s, is scraped: %t", name, role, got)
			}
		}
	}
}
