package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/prometheus"
)

// ofOpenShift contains the objects that OpenShift's Prometheus has in addition to config/monitoring: a service account,
// and rights to read nodes and objects in kube-system.
const ofOpenShift = `
apiVersion: v1
kind: Namespace
metadata: {name: openshift-monitoring}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: openshift-monitoring, name: prometheus-k8s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus-k8s}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus-k8s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus-k8s}
subjects: [{kind: ServiceAccount, namespace: openshift-monitoring, name: prometheus-k8s}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: kube-system, name: prometheus-k8s}
rules:
- {apiGroups: [""], resources: [services, endpoints, pods], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: kube-system, name: prometheus-k8s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: prometheus-k8s}
subjects: [{kind: ServiceAccount, namespace: openshift-monitoring, name: prometheus-k8s}]
`

// endpoints are the objects that the cluster creates for the operator's pod. In the lab, the operator runs as a process
// instead of a pod. The pod names a ReplicaSet, which adopts it.
const endpoints = `
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: operator, labels: {app.kubernetes.io/name: windows-machine-config-operator}}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: manager
    image: example.com/wmco
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {namespace: %[1]s, name: operator}
spec:
  replicas: 1
  selector: {matchLabels: {app.kubernetes.io/name: windows-machine-config-operator}}
  template:
    metadata: {labels: {app.kubernetes.io/name: windows-machine-config-operator}}
    spec:
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: manager
        image: example.com/wmco
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Endpoints
metadata: {namespace: %[1]s, name: windows-machine-config-operator-metrics,
  labels: {app.kubernetes.io/name: windows-machine-config-operator}}
subsets:
- addresses: [{ip: %[2]s, targetRef: {kind: Pod, namespace: %[1]s, name: operator}}]
  ports: [{name: https, port: %[3]s}]
`

// A real Prometheus must scrape the operator and the nodes, and evaluate all rules. The Prometheus operator's own code
// configures it from config/monitoring. It uses only the rights that config/monitoring grants.
func TestA37_NodesAndTheOperatorAreScrapedAndTheRulesEvaluate(t *testing.T) {
	t.Parallel()
	s, h := reachable(t)
	manifests, rules := s.monitored(t)
	s.apply(t, ofOpenShift)
	s.apply(t, fmt.Sprintf(endpoints, contract.OperatorNamespace, h.Address().Addr(), operatorMetricsPort))
	s.put(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "web"},
		Spec: corev1.PodSpec{NodeName: h.Name, OS: &corev1.PodOS{Name: corev1.Windows},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "web", Image: "mcr.microsoft.com/windows/nanoserver:ltsc2022"}}}})
	state := httptest.NewServer(http.HandlerFunc(s.kubeState))
	t.Cleanup(state.Close)
	p, err := prometheus.Start(t.Context(), prometheus.Options{Cluster: s.Cluster, Manifests: manifests,
		Namespace: "openshift-monitoring", Account: "prometheus-k8s", Dir: t.TempDir(), Progress: os.Stderr,
		KubeState: strings.TrimPrefix(state.URL, "http://"), Interval: time.Second, Hold: 2 * time.Second})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the end of the log of Prometheus:", p.Tail(4000))
		}
		must(t, p.Stop())
	})

	s.measured(t, p, `up{job="windows-exporter",instance="`+h.Name+`"} == 1`)
	s.measured(t, p, `up{job="windows-machine-config-operator-metrics"} == 1`)
	s.measured(t, p, `wmco_instance_ready{node="`+h.Name+`"} == 1`)
	s.measured(t, p, `wicd_resolver_failures_total{instance="`+h.Name+`"}`)
	recorded := 0
	for _, rule := range rules {
		switch {
		case rule.Record == "":
		case strings.Contains(rule.Record, "container"):
			s.measured(t, p, fmt.Sprintf(`{__name__=%q,namespace="default",pod="web"}`, rule.Record))
			recorded++
		default:
			s.measured(t, p, fmt.Sprintf(`{__name__=%q,instance=%q}`, rule.Record, h.Name))
			recorded++
		}
	}
	if recorded != 15 {
		t.Errorf("there are %d recording rules", recorded)
	}
	s.alerts(t, p, h)
}

// alerts makes an alert fire and waits until it stops.
func (s *stage) alerts(t *testing.T, p *prometheus.Prometheus, h *fleet.Host) {
	t.Helper()
	// Ignore this alert: it looks back ten minutes, which is longer than this Prometheus has run. A70 makes this alert
	// fire and end.
	const firing = `ALERTS{alertstate="firing",alertname!="WindowsOperatorDown"}`
	s.silent(t, p, firing)
	facts, err := h.Machine.Host().System.Facts(t.Context())
	must(t, err)
	h.Machine.SetDiskFree(facts.DiskTotal / 20)
	s.measured(t, p, `ALERTS{alertstate="firing",alertname="WindowsDiskFull",severity="warning",instance="`+h.Name+`"}`)
	h.Machine.SetDiskFree(facts.DiskFree)
	s.silent(t, p, firing)
}

// measured waits until a query has a result. silent waits until a query has no result.
func (s *stage) measured(t *testing.T, p *prometheus.Prometheus, query string) {
	t.Helper()
	s.await(t, query, func(ctx context.Context) (bool, string, error) {
		result, err := p.Query(ctx, query)
		return len(result) > 0, "it has no result", err
	})
}

func (s *stage) silent(t *testing.T, p *prometheus.Prometheus, query string) {
	t.Helper()
	s.await(t, "no "+query, func(ctx context.Context) (bool, string, error) {
		result, err := p.Query(ctx, query)
		return len(result) == 0, result.String(), err
	})
}

// monitored applies config/monitoring and the operator's Services, except objects of the Prometheus operator's kinds.
// It returns the manifests and the rules.
func (s *stage) monitored(t *testing.T) (manifests []byte, rules []monitoringv1.Rule) {
	t.Helper()
	root, err := cluster.ModuleRoot()
	must(t, err)
	made, err := exec.CommandContext(t.Context(), s.Cluster.Binaries.Kubectl, "kustomize",
		filepath.Join(root, "config", "monitoring")).Output()
	must(t, err)
	services, err := os.ReadFile(filepath.Join(root, "config", "manager", "service.yaml"))
	must(t, err)
	rest := [][]byte{services}
	for document := range bytes.SplitSeq(made, []byte("\n---\n")) {
		if !bytes.Contains(document, []byte("apiVersion: monitoring.coreos.com/v1")) {
			rest = append(rest, document)
			continue
		}
		manifests = append(append(manifests, document...), "\n---\n"...)
		rule := &monitoringv1.PrometheusRule{}
		must(t, yaml.Unmarshal(document, rule))
		for _, group := range rule.Spec.Groups {
			rules = append(rules, group.Rules...)
		}
	}
	s.apply(t, string(bytes.Join(rest, []byte("\n---\n"))))
	return manifests, rules
}

func (s *stage) apply(t *testing.T, manifests string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), s.Cluster.Binaries.Kubectl, "--kubeconfig", s.Cluster.Kubeconfig, "apply",
		"--server-side", "-f", "-")
	c.Stdin = strings.NewReader(manifests)
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// kubeState serves the metrics of kube-state-metrics about pods that this project's rules use.
func (s *stage) kubeState(w http.ResponseWriter, r *http.Request) {
	pods := &corev1.PodList{}
	if err := s.Client.List(r.Context(), pods); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(w, "kube_pod_info{namespace=%q,pod=%q,uid=%q,node=%q} 1\n", pod.Namespace, pod.Name, pod.UID,
			pod.Spec.NodeName)
		for _, c := range pod.Status.ContainerStatuses {
			fmt.Fprintf(w, "kube_pod_container_info{namespace=%q,pod=%q,uid=%q,container=%q,container_id=%q} 1\n",
				pod.Namespace, pod.Name, pod.UID, c.Name, c.ContainerID)
		}
	}
}
