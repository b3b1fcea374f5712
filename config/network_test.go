package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Policies are additive: if a policy selects a pod, traffic that no policy allows is blocked.
func TestA55_OnlyThePayloadAndPrometheusReachTheOperatorsPod(t *testing.T) {
	t.Parallel()
	pod := named[*appsv1.Deployment](t, "windows-machine-config-operator").Spec.Template
	ports := map[string]int32{}
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for name, from := range map[string]struct {
		port      string
		number    int32
		namespace string
	}{
		"windows-machine-config-operator":         {"payload", 9183, ""},
		"windows-machine-config-operator-metrics": {"metrics", 9182, "openshift-monitoring"},
	} {
		policy := named[*networkingv1.NetworkPolicy](t, name).Spec
		if diff := cmp.Diff(policy.PodSelector.MatchLabels, pod.Labels); diff != "" {
			t.Errorf("%s does not select the operator's pod: %s", name, diff)
		}
		if len(policy.PolicyTypes) != 1 || policy.PolicyTypes[0] != networkingv1.PolicyTypeIngress ||
			len(policy.Ingress) != 1 || len(policy.Ingress[0].Ports) != 1 {
			t.Fatalf("%s: %+v", name, policy)
		}
		if got := policy.Ingress[0].Ports[0].Port.StrVal; got != from.port || ports[got] != from.number {
			t.Errorf("%s opens port %s, which is %d", name, got, ports[got])
		}
		peers := policy.Ingress[0].From
		if from.namespace == "" && len(peers) > 0 {
			t.Errorf("%s: a policy can't select nodes as peers: %+v", name, peers)
		}
		if from.namespace != "" && (len(peers) != 1 || peers[0].PodSelector != nil || peers[0].IPBlock != nil ||
			peers[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != from.namespace) {
			t.Errorf("%s allows the peers %+v", name, peers)
		}
	}
}
