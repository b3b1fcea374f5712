package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/lab/capi"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/port"
)

const (
	clusterAPIGroup = "cluster.x-k8s.io"
	bootstrapGroup  = "bootstrap.windowsmachineconfig.openshift.io"
	providerSpace   = "windows-bootstrap-system"
	team            = "team-a" // the namespace of the Cluster
)

// management is a management cluster with the core controllers, the lab's infrastructure provider, and the bootstrap
// provider. Its only workload cluster is a stage.
type management struct {
	*capi.Infrastructure
	lab      *cluster.Cluster
	api      client.Client
	core     *capi.Core
	log      string
	workload *stage
	version  string // of Kubernetes in the workload cluster
}

// manage turns a cluster of the lab into the management cluster of a stage.
func manage(t *testing.T, workload *stage, lab *cluster.Cluster, hosts int) *management {
	t.Helper()
	dir, ctx := t.TempDir(), t.Context()
	api, err := client.New(lab.Admin(), client.Options{})
	must(t, err)
	m := &management{lab: lab, api: api, log: filepath.Join(dir, "provider.log"), workload: workload}
	m.core, err = capi.Start(ctx, lab, dir, os.Stderr)
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			content, _ := os.ReadFile(m.log)
			t.Logf("the end of the log of the core controllers: %s\nthe log of the provider: %s", m.core.Tail(6000),
				content[max(0, len(content)-6000):])
		}
		must(t, m.core.Stop())
	})
	var stop func() error
	m.Infrastructure, stop, err = capi.Provide(context.WithoutCancel(ctx), lab, dir, workload.hosts(t, hosts),
		testr.New(t))
	must(t, err)
	t.Cleanup(func() { must(t, stop()) })
	m.provider(t, dir)
	m.cluster(t)
	return m
}

// provider installs the bootstrap provider, and runs it with its service account.
func (m *management) provider(t *testing.T, dir string) {
	t.Helper()
	root, err := cluster.ModuleRoot()
	must(t, err)
	output, err := exec.CommandContext(t.Context(), m.lab.Binaries.Kubectl, "--kubeconfig", m.lab.Kubeconfig, "apply",
		"--server-side", "-k", filepath.Join(root, "config", "bootstrap")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	_, kubeconfig, err := m.lab.ServiceAccountConfig(t.Context(), providerSpace, "windows-bootstrap-provider", time.Hour)
	must(t, err)
	path := filepath.Join(dir, "provider.kubeconfig")
	must(t, os.WriteFile(path, kubeconfig, 0o600))
	health, err := port.Hold(t.Context())
	must(t, err)
	t.Cleanup(health.Release)
	log, err := os.Create(m.log)
	must(t, err)
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Getenv("WMCO_OPERATOR"), "bootstrap-provider", "--kubeconfig", path,
		"--health-probe-bind-address", health.Address())
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"WATCH_NAMESPACE=" + providerSpace}, log, log
	ended, err := cluster.StartChild(cmd)
	must(t, err)
	t.Cleanup(func() {
		must(t, cmd.Process.Kill())
		_ = ended()
	})
}

// cluster creates the Cluster of the stage.
func (m *management) cluster(t *testing.T) {
	t.Helper()
	must(t, m.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}))
	kubeconfig, err := cluster.Kubeconfig(m.workload.Cluster.Admin())
	must(t, err)
	must(t, m.api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "lab-kubeconfig",
		Labels: map[string]string{clusterAPIGroup + "/cluster-name": "lab"}}, Type: clusterAPIGroup + "/secret",
		Data: map[string][]byte{"value": kubeconfig}}))
	ref := func(kind string) map[string]any {
		m.create(t, capi.InfrastructureGroup, "v1", kind, "lab", nil)
		return map[string]any{"apiGroup": capi.InfrastructureGroup, "kind": kind, "name": "lab"}
	}
	m.create(t, clusterAPIGroup, "v1beta2", "Cluster", "lab", map[string]any{
		"infrastructureRef": ref("LabCluster"), "controlPlaneRef": ref("LabControlPlane")})
	clients, err := discovery.NewDiscoveryClientForConfig(m.workload.Cluster.Admin())
	must(t, err)
	version, err := clients.ServerVersion()
	must(t, err)
	m.version = version.GitVersion
}

func (m *management) create(t *testing.T, group, version, kind, name string, spec map[string]any) {
	t.Helper()
	o := capi.Object(group, version, kind, team, name)
	if spec != nil {
		o.Object["spec"] = spec
	}
	must(t, m.api.Create(t.Context(), o))
}

// template creates a WindowsConfigTemplate.
func (m *management) template(t *testing.T, name, format string) {
	t.Helper()
	m.create(t, bootstrapGroup, "v1alpha1", "WindowsConfigTemplate", name, map[string]any{
		"template": map[string]any{"spec": map[string]any{"format": format}}})
}

// deployment creates a MachineDeployment of Windows nodes.
func (m *management) deployment(t *testing.T, name, template string, replicas int64) {
	t.Helper()
	labels := map[string]any{"deployment": name}
	m.create(t, clusterAPIGroup, "v1beta2", "MachineDeployment", name, map[string]any{
		"clusterName": "lab", "replicas": replicas,
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{"clusterName": "lab", "version": m.version,
				"bootstrap": map[string]any{"configRef": map[string]any{
					"apiGroup": bootstrapGroup, "kind": "WindowsConfigTemplate", "name": template}},
				"infrastructureRef": map[string]any{
					"apiGroup": capi.InfrastructureGroup, "kind": "LabMachineTemplate", "name": name}}}})
}

func (m *management) list(ctx context.Context, group, version, kind string) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(capi.Object(group, version, kind+"List", "", "").GroupVersionKind())
	err := m.api.List(ctx, list, client.InNamespace(team))
	return list.Items, err
}

// running waits until there are n Machines, and each is Running with a Ready Windows node that has its provider ID.
func (m *management) running(t *testing.T, n int, bootstrap string) {
	t.Helper()
	m.workload.await(t, fmt.Sprintf("%d running Machines", n), func(ctx context.Context) (bool, string, error) {
		machines, err := m.list(ctx, clusterAPIGroup, "v1beta2", "Machine")
		if err != nil || len(machines) != n {
			return false, fmt.Sprint(len(machines), " Machines"), err
		}
		for i := range machines {
			machine := &machines[i]
			phase, _, _ := unstructured.NestedString(machine.Object, "status", "phase")
			name, _, _ := unstructured.NestedString(machine.Object, "status", "nodeRef", "name")
			config := capi.Object(bootstrapGroup, "v1alpha1", "WindowsConfig", team, machine.GetName())
			if err = m.api.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
				return false, "no WindowsConfig", client.IgnoreNotFound(err)
			}
			origin := config.GetAnnotations()[clusterAPIGroup+"/cloned-from-name"]
			conditions, _, _ := unstructured.NestedSlice(machine.Object, "status", "conditions")
			said := fmt.Sprint(machine.GetName(), " is ", phase, " from ", origin, ": ", config.Object["status"], conditions)
			if phase != "Running" || name == "" || origin != bootstrap || !isTrue(conditions, "Available") {
				return false, said, nil
			}
			node := &corev1.Node{}
			if err = m.workload.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil ||
				isTainted(node) ||
				node.Spec.ProviderID != "lab:///"+machine.GetName() || node.Labels[corev1.LabelOSStable] != "windows" {
				return false, fmt.Sprint(said, ", node ", node.Spec), client.IgnoreNotFound(err)
			}
		}
		return true, "", nil
	})
}

// isTrue reports whether a condition is True.
func isTrue(conditions []any, kind string) bool {
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == kind && condition["status"] == "True"
	})
}

// left lists the objects that Machines have left in both clusters.
func (m *management) left(ctx context.Context) (names []string, err error) {
	for _, kind := range [][3]string{{clusterAPIGroup, "v1beta2", "Machine"}, {clusterAPIGroup, "v1beta2", "MachineSet"},
		{bootstrapGroup, "v1alpha1", "WindowsConfig"}, {capi.InfrastructureGroup, "v1", "LabMachine"}} {
		items, err := m.list(ctx, kind[0], kind[1], kind[2])
		if err != nil {
			return nil, err
		}
		for i := range items {
			names = append(names, kind[2]+" "+items[i].GetName())
		}
	}
	secrets, nodes := &corev1.SecretList{}, &corev1.NodeList{}
	if err = m.api.List(ctx, secrets, client.InNamespace(team)); err != nil {
		return nil, err
	}
	for i := range secrets.Items {
		if secrets.Items[i].Name != "lab-kubeconfig" {
			names = append(names, "Secret "+secrets.Items[i].Name)
		}
	}
	if err = m.workload.Client.List(ctx, nodes, client.MatchingLabels{corev1.LabelOSStable: "windows"}); err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		names = append(names, "Node "+nodes.Items[i].Name)
	}
	own := &corev1.SecretList{}
	err = m.workload.Client.List(ctx, own, client.InNamespace(contract.OperatorNamespace))
	for i := range own.Items {
		for _, prefix := range []string{contract.CallSecretPrefix, contract.JoinSecretPrefix} {
			// The token for Machines of OpenShift doesn't belong to a Machine of Cluster API.
			if name := own.Items[i].Name; strings.HasPrefix(name, prefix) && name != contract.MachinesJoinSecret {
				names = append(names, "Secret "+own.Items[i].Name)
			}
		}
	}
	return names, err
}

func (m *management) nothingLeft(t *testing.T) {
	t.Helper()
	m.workload.await(t, "all objects of the Machines to be deleted", func(ctx context.Context) (bool, string, error) {
		names, err := m.left(ctx)
		return len(names) == 0, strings.Join(names, ", "), err
	})
}

func (m *management) patch(t *testing.T, kind, name, patch string) {
	t.Helper()
	o := capi.Object(clusterAPIGroup, "v1beta2", kind, team, name)
	must(t, m.api.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// taints records when Cluster API's taint is on each Windows Node. check fails if pods could be scheduled on a Node
// before it had the taint.
func (m *management) taints(t *testing.T) (check func()) {
	t.Helper()
	api, err := client.NewWithWatch(m.workload.Cluster.Admin(), client.Options{})
	must(t, err)
	w, err := api.Watch(t.Context(), &corev1.NodeList{})
	must(t, err)
	had, early, ended := map[types.UID]bool{}, []string{}, make(chan struct{})
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			node, isNode := e.Object.(*corev1.Node)
			if !isNode || node.Labels[corev1.LabelOSStable] != string(corev1.Windows) {
				continue
			}
			had[node.UID] = had[node.UID] || isTainted(node)
			if isReady, _ := journey.NodeReady(node); isReady && !node.Spec.Unschedulable && !had[node.UID] {
				early = append(early, node.Name)
			}
		}
	}()
	return func() {
		w.Stop()
		<-ended
		if len(had) == 0 || len(early) > 0 {
			t.Errorf("of %d Nodes, these were schedulable before they had the taint: %v", len(had), early)
		}
	}
}

func isTainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == contract.ClusterAPITaint })
}

func TestA87_AMachineDeploymentOfClusterAPIScalesRollsAndGoes(t *testing.T) {
	t.Parallel()
	s := byItselfIn(t, 4, alone)
	m := manage(t, s, s.Cluster, 4) // the cluster manages itself
	m.template(t, "init", "cloudbase-init")
	m.template(t, "launch", "ec2launch")
	m.create(t, capi.InfrastructureGroup, "v1", "LabMachineTemplate", "win",
		map[string]any{"template": map[string]any{"spec": map[string]any{}}})
	check := m.taints(t)
	m.deployment(t, "win", "init", 1)
	m.running(t, 1, "init")
	m.patch(t, "MachineDeployment", "win", `{"spec":{"replicas":3}}`)
	m.running(t, 3, "init")
	m.patch(t, "MachineDeployment", "win", `{"spec":{"replicas":1}}`)
	m.running(t, 1, "init")
	m.patch(t, "MachineDeployment", "win", `{"spec":{"template":{"spec":{"bootstrap":{"configRef":{"name":"launch"}}}}}}`)
	m.running(t, 1, "launch")
	check()
	must(t, m.api.Delete(t.Context(), capi.Object(clusterAPIGroup, "v1beta2", "MachineDeployment", team, "win")))
	m.nothingLeft(t)
}

func TestA87_AMachineThatNeverBootsIsReplacedFromAnotherCluster(t *testing.T) {
	t.Parallel()
	s := byItselfIn(t, 1, alone)
	m := manage(t, s, plane.Start(t, cluster.Options{}), 1)
	m.template(t, "init", "cloudbase-init")
	m.create(t, capi.InfrastructureGroup, "v1", "LabMachineTemplate", "win",
		map[string]any{"template": map[string]any{"spec": map[string]any{"neverBoots": true}}})
	m.create(t, clusterAPIGroup, "v1beta2", "MachineHealthCheck", "win", map[string]any{"clusterName": "lab",
		"selector": map[string]any{"matchLabels": map[string]any{"deployment": "win"}},
		"checks":   map[string]any{"nodeStartupTimeoutSeconds": int64(30)}})
	m.deployment(t, "win", "init", 1)
	dead := ""
	s.await(t, "the WindowsConfig's status to name the reason for waiting", func(ctx context.Context) (bool, string,
		error) {
		configs, err := m.list(ctx, bootstrapGroup, "v1alpha1", "WindowsConfig")
		if err != nil || len(configs) != 1 {
			return false, fmt.Sprint(len(configs), " WindowsConfigs"), err
		}
		dead = configs[0].GetName()
		said := fmt.Sprint(configs[0].Object["status"])
		return strings.Contains(said, contract.ReasonHostAwaited.Code()), said, nil
	})
	template := capi.Object(capi.InfrastructureGroup, "v1", "LabMachineTemplate", team, "win")
	must(t, m.api.Patch(t.Context(), template, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"neverBoots":false}}}}`))))
	m.running(t, 1, "init")
	if machines, err := m.list(t.Context(), clusterAPIGroup, "v1beta2", "Machine"); err != nil ||
		machines[0].GetName() == dead {
		t.Errorf("Machine %s, which never booted, was not replaced: %v", dead, err)
	}
	must(t, m.api.Delete(t.Context(), capi.Object(clusterAPIGroup, "v1beta2", "MachineDeployment", team, "win")))
	m.nothingLeft(t)
}
