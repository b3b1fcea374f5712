package kubectlwindows_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/kubectlwindows"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
)

// terminal runs commands as a user would at a terminal.
type terminal struct {
	client.Client
	lab        *cluster.Cluster
	kubeconfig string
}

// start starts a control plane with the CRDs of the operator. It has three hosts: a host whose Node is Ready, a host
// that refuses the key, and the host of a Machine.
func start(t *testing.T) *terminal {
	t.Helper()
	plane.SkipIfShort(t)
	lab, err := cluster.Start(t.Context(), cluster.Options{Progress: os.Stderr, Audit: true,
		NodeMonitorGrace: time.Hour}) // the Nodes have no kubelet that updates them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Stop(); err != nil {
			t.Error(err)
		}
	})
	if _, err = cluster.InstallCRDs(t.Context(), lab.Admin(), cluster.CRDOptions{
		Paths: []string{"../../config/crd"}}); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err = clientscheme.AddToScheme(scheme); err == nil {
		err = v1alpha1.AddToScheme(scheme)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(lab.Admin(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	at := &terminal{Client: c, lab: lab, kubeconfig: lab.Kubeconfig}
	at.populate(t)
	return at
}

func (at *terminal) populate(t *testing.T) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-1",
		Labels: map[string]string{corev1.LabelOSStable: "windows", corev1.LabelWindowsBuild: "10.0.20348"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now()}}}}
	ready := instance("10.0.0.1", &v1alpha1.Source{Kind: v1alpha1.SourceConfigMap, Name: "10.0.0.1"},
		v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseReady, NodeName: "win-1",
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
				Reason: "NodeReady", LastTransitionTime: metav1.Now()}, {Type: v1alpha1.ConditionProgressing,
				Status: metav1.ConditionFalse, Reason: "NodeReady", LastTransitionTime: metav1.Now()}}})
	refused := instance("10.0.0.2", &v1alpha1.Source{Kind: v1alpha1.SourceConfigMap, Name: "10.0.0.2"},
		v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseConnecting, Failures: 2,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue,
				Reason: string(contract.ReasonKeyRefused), LastTransitionTime: metav1.Now(), Message: contract.NewProblem(
					contract.ReasonKeyRefused, "the host does not accept the key").Explain()}}})
	machine := instance("machine-a", &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "machine-a"},
		v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhasePending})
	at.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: contract.OperatorNamespace}}, node, ready,
		refused, machine,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: contract.InstancesConfigMap,
			Namespace: contract.OperatorNamespace}, Data: map[string]string{"10.0.0.1": "username=Administrator",
			"10.0.0.2": "username=Administrator", "_not-understood": "mine"},
			BinaryData: map[string][]byte{"10.0.0.3": []byte("\xff\xfeu\x00"), "10.0.0.4": []byte("\xff\xfeu\x00")}},
		&v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject},
			Status: v1alpha1.WindowsMachineConfigStatus{Operator: v1alpha1.OperatorStatus{
				Namespace: contract.OperatorNamespace}}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: contract.LeaderLease,
			Namespace: contract.OperatorNamespace}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("wmco-1"),
			LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()}}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: contract.OperatorNamespace},
			InvolvedObject: corev1.ObjectReference{Kind: "WindowsInstance", Name: "10.0.0.2",
				Namespace: contract.OperatorNamespace}, Reason: "KeyRefused", Message: "an event of the host",
			LastTimestamp: metav1.Now()})
}

func instance(name string, source *v1alpha1.Source, status v1alpha1.WindowsInstanceStatus) *v1alpha1.WindowsInstance {
	return &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: contract.OperatorNamespace},
		Spec:   v1alpha1.WindowsInstanceSpec{Address: name, Username: "Administrator", Source: source},
		Status: status}
}

// create creates objects and sets their status, which normally other clients set.
func (at *terminal) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var with struct {
			Status json.RawMessage `json:"status,omitempty"`
		}
		if err = json.Unmarshal(text, &with); err != nil {
			t.Fatal(err)
		}
		if err = at.Create(t.Context(), object); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		if text, err = json.Marshal(with); err != nil || len(with.Status) <= len("{}") {
			continue
		}
		if err = at.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, text)); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a command and returns its exit code and its output. input is its standard input.
func (at *terminal) run(ctx context.Context, input string, args ...string) (code int, out, errOut string) {
	var stdout, stderr bytes.Buffer
	code = kubectlwindows.Run(ctx, append([]string{"kubectl-windows", "--kubeconfig", at.kubeconfig}, args...),
		genericiooptions.IOStreams{In: strings.NewReader(input), Out: &stdout, ErrOut: &stderr})
	return code, stdout.String(), stderr.String()
}

// as returns a terminal for a user. The user has only the rights that are bound to user and groups.
func (at *terminal) as(t *testing.T, user string, groups ...string) *terminal {
	t.Helper()
	config, err := at.lab.UserConfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return at.with(t, config)
}

func (at *terminal) with(t *testing.T, config *rest.Config) *terminal {
	t.Helper()
	text, err := cluster.Kubeconfig(config)
	if err != nil {
		t.Fatal(err)
	}
	other := *at
	other.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err = os.WriteFile(other.kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return &other
}

// expect runs a command, and checks that it returns the exit code and that its output contains the texts.
func (at *terminal) expect(t *testing.T, code int, texts []string, args ...string) string {
	t.Helper()
	have, out, errOut := at.run(t.Context(), "", args...)
	if have != code {
		t.Errorf("%v ended with %d, want %d:\n%s%s", args, have, code, out, errOut)
	}
	for _, text := range texts {
		if !strings.Contains(out+errOut, text) {
			t.Errorf("the output of %v lacks %q:\n%s%s", args, text, out, errOut)
		}
	}
	return out
}

// wrongNamespace runs status for a namespace without an operator. The output must name this namespace and the
// operator's namespace.
func wrongNamespace(t *testing.T, at *terminal) {
	t.Helper()
	at.expect(t, 2, []string{"no operator is running in namespace default",
		"the operator runs in namespace " + contract.OperatorNamespace,
		"use --operator-namespace " + contract.OperatorNamespace}, "status", "--operator-namespace", "default")
	if out := at.expect(t, 2, nil, "status"); strings.Contains(out, "--operator-namespace") {
		t.Errorf("the hint also appears in the right namespace: %s", out)
	}
}

// TestA75_ThePluginAtAnAPIServer runs the commands with a real API server.
func TestA75_ThePluginAtAnAPIServer(t *testing.T) {
	t.Parallel()
	at := start(t)
	for name, test := range map[string]func(*testing.T, *terminal){
		"status": statusCommand, "why": whyCommand, "what can't be read": unreadable, "completion": completion,
		"lint": lintCommand, "a wrong namespace of the operator": wrongNamespace,
		"drain-status": drainCommand, "reports of daemons": reports,
	} {
		t.Run(name, func(t *testing.T) { test(t, at) })
	}
	// Run commands that only read before commands that change hosts.
	t.Run("rights", func(t *testing.T) { rightsOfThePage(t, at) })
	t.Run("bundle", func(t *testing.T) { bundleCommand(t, at) })
	t.Run("bundles that lack something", func(t *testing.T) { partialBundles(t, at) })
	t.Run("names that exist twice", func(t *testing.T) { twice(t, at) })
	t.Run("few rights", func(t *testing.T) { fewRights(t, at) })
	t.Run("no operator", func(t *testing.T) { withoutAnOperator(t, at) })
	t.Run("a node that never answers", func(t *testing.T) { hangingNode(t, at) })
	t.Run("slow API server", func(t *testing.T) { slowly(t, at) })
	t.Run("hostile text", func(t *testing.T) { hostileFormats(t, at) })
	t.Run("hostile log", func(t *testing.T) { hostileLog(t, at) })
	t.Run("pause and resume", func(t *testing.T) { pauseCommands(t, at) })
	t.Run("preflight", func(t *testing.T) { preflightCommand(t, at) })
	t.Run("reboot", func(t *testing.T) { rebootCommand(t, at) })
	t.Run("add", func(t *testing.T) { addCommand(t, at) })
	t.Run("adds at once", func(t *testing.T) { addsAtOnce(t, at) })
	t.Run("remove", func(t *testing.T) { removeCommand(t, at) })
	t.Run("many events", func(t *testing.T) { manyEvents(t, at) })
	t.Run("500 hosts", func(t *testing.T) { fleetOf500(t, at) })
}

func statusCommand(t *testing.T, at *terminal) {
	t.Helper()
	at.expect(t, 2, []string{"OPERATOR   wmco-1", "3 hosts: 1 Ready, 1 joining, 1 failing", "W202 KeyRefused", "fix:"},
		"status")
	at.expect(t, 2, []string{"ADDRESS", "MESSAGE"}, "status", "-o", "wide")
	at.expect(t, 1, []string{"must be wide, json, yaml"}, "status", "-o", "xml")
	var status struct {
		Instances v1alpha1.InstanceCounts `json:"instances"`
	}
	if err := json.Unmarshal([]byte(at.expect(t, 2, nil, "status", "-o", "json")), &status); err != nil ||
		status.Instances.Total != 3 {
		t.Errorf("%+v, %v", status, err)
	}
	if out := at.expect(t, 2, nil, "status"); strings.Contains(out, "\x1b") {
		t.Errorf("the output has colours, although it is no terminal: %q", out)
	}
}

func whyCommand(t *testing.T, at *terminal) {
	t.Helper()
	at.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "default"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "win-1", Namespace: "default"}, Spec: corev1.PodSpec{
			NodeName: "win-1", NodeSelector: map[string]string{corev1.LabelOSStable: "windows"},
			Containers: []corev1.Container{{Name: "web", Image: "web", Command: []string{"/bin/sh"}}}}})
	at.expect(t, 2, []string{"W202 KeyRefused", "fix: Add the public key", "an event of the host"}, "why", "10.0.0.2")
	at.expect(t, 0, []string{"host 10.0.0.1, node win-1"}, "why", "10.0.0.1")
	at.expect(t, 0, []string{"host 10.0.0.1, node win-1"}, "why", "node/win-1")
	at.expect(t, 1, []string{"say host/win-1 or pod/win-1"}, "why", "win-1")
	at.expect(t, 2, []string{"/bin/sh is a Linux program"}, "why", "pod/win-1", "-n", "default")
	at.expect(t, 1, []string{"no host, node or pod is named nobody"}, "why", "nobody")
	at.expect(t, 1, []string{"none of host, node, pod"}, "why", "service/web")
}

// manyEvents checks that the newest events are shown. The API server returns the oldest events first.
func manyEvents(t *testing.T, at *terminal) {
	t.Helper()
	many := instance("many", nil, v1alpha1.WindowsInstanceStatus{})
	at.create(t, many)
	begin := time.Now().Add(-time.Hour)
	for i := range 250 {
		at.create(t, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many.%03d", i),
			Namespace: contract.OperatorNamespace}, InvolvedObject: corev1.ObjectReference{Kind: "WindowsInstance",
			Name: many.Name, Namespace: contract.OperatorNamespace}, Message: fmt.Sprintf("event %03d", i),
			LastTimestamp: metav1.NewTime(begin.Add(time.Duration(i) * time.Second))})
	}
	at.expect(t, 0, []string{"event 249"}, "why", "host/many")
	out := at.expect(t, 0, []string{"event 249", "event 050"}, "why", "host/many", "-o", "json")
	if strings.Contains(out, "event 049") || strings.Contains(out, "unread") {
		t.Errorf("the output does not have the newest 200 events: %s", out)
	}
	if err := at.Delete(t.Context(), many); err != nil {
		t.Error(err)
	}
}

func unreadable(t *testing.T, at *terminal) {
	t.Helper()
	at.as(t, "nobody").expect(t, 1, []string{"listing WindowsInstances", "forbidden"}, "status")
	away := at.with(t, &rest.Config{Host: "https://127.0.0.1:1"})
	away.expect(t, 1, []string{"error:", "refused"}, "status")
	other := *at
	other.kubeconfig = filepath.Join(t.TempDir(), "absent")
	other.expect(t, 1, []string{"error:"}, "status")
}

func completion(t *testing.T, at *terminal) {
	t.Helper()
	at.expect(t, 0, []string{"10.0.0.2", "win-1"}, "__complete", "why", "")
	var out bytes.Buffer
	code := kubectlwindows.Run(t.Context(), []string{"/usr/bin/kubectl_complete-windows", "sta"},
		genericiooptions.IOStreams{In: &out, Out: &out, ErrOut: &out})
	if code != 0 || !strings.Contains(out.String(), "status\t") {
		t.Errorf("%d, %s", code, out.String())
	}
	for _, command := range []string{"status", "why", "lint", "add", "remove", "pause", "resume", "reboot",
		"logs", "drain-status", "bundle", "preflight"} {
		at.expect(t, 0, []string{"Examples:"}, command, "--help")
	}
}
