package kubectlwindows_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/kubectlwindows"
)

func lintCommand(t *testing.T, at *terminal) {
	t.Helper()
	const manifest = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.26100}
      containers: [{name: web, image: web, command: [/bin/sh]}]
`
	file := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	alone := *at
	alone.kubeconfig = filepath.Join(t.TempDir(), "absent") // lint needs no cluster to check files
	if out := alone.expect(t, 2, []string{"/bin/sh is a Linux program"}, "lint", file); strings.Contains(out, "26100") {
		t.Errorf("builds were checked without a cluster:\n%s", out)
	}
	at.expect(t, 2, []string{"10.0.26100, which no node of the cluster has"}, "lint", "-f", file, "--against-cluster")
	if code, out, _ := alone.run(t.Context(), manifest, "lint", "-", "-o", "json"); code != 2 ||
		!strings.Contains(out, `"rule": "command"`) {
		t.Errorf("with standard input: %d %s", code, out)
	}
	at.expect(t, 1, []string{"specify files"}, "lint")
	at.expect(t, 1, []string{"does not exist"}, "lint", "absent.yaml")

	labels := map[string]string{"app": "live"}
	at.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "live", Namespace: "shop"}, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeSelector: map[string]string{corev1.LabelOSStable: "windows"},
				Containers:   []corev1.Container{{Name: "web", Image: "web", Command: []string{"/bin/sh"}}}}}}})
	at.expect(t, 2, []string{"Deployment shop/live"}, "lint", "--live", "-n", "shop")
	at.expect(t, 2, []string{"Deployment shop/live"}, "lint", "--live", "-A")
	at.expect(t, 2, []string{"Deployment shop/live"}, "lint", "--live", "-n", "shop", "deployment/live")
	at.expect(t, 0, []string{"0 errors"}, "lint", "--live", "-n", "kube-system", "deployments")
	at.as(t, "nobody").expect(t, 1, []string{"forbidden"}, "lint", "--live", "-n", "shop")
}

func drainCommand(t *testing.T, at *terminal) {
	t.Helper()
	at.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "held"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: "held"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "held", Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: "win-1", Containers: []corev1.Container{{Name: "web", Image: "web"}}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "budget", Namespace: "held"},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"app": "web"}}}})
	held := []string{"node win-1: schedulable", "PodDisruptionBudget budget allows none"}
	at.expect(t, 2, held, "drain-status", "win-1")
	at.expect(t, 2, held, "drain-status", "10.0.0.1")
	over := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "over", Namespace: "held", Finalizers: []string{"example.com/gone"}},
		Spec:   corev1.PodSpec{NodeName: "win-1", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
		Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	at.create(t, over)
	if err := at.Delete(t.Context(), over, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if out := at.expect(t, 2, held, "drain-status", "win-1"); strings.Contains(out, "over") {
		t.Errorf("a drain waits for a pod that has ended:\n%s", out)
	}
	at.expect(t, 1, []string{"no node is named"}, "drain-status", "nobody")
}

// refusedRemoval tests a user who may change hosts but not remove them. The API server refuses this user's forced
// removal. A later removal must then not be forced.
func refusedRemoval(t *testing.T, at *terminal) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "changes-only", Namespace: contract.OperatorNamespace}
	at.create(t, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.Group}, Resources: []string{"windowsinstances"}, Verbs: []string{"get", "list", "patch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}},
	}}, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: meta.Name}}},
		instance("refused", nil, v1alpha1.WindowsInstanceStatus{}))
	user := at.as(t, meta.Name)
	for _, name := range []string{"10.0.0.2", "refused"} {
		user.expect(t, 1, []string{"forbidden"}, "remove", name, "--force", "--yes")
		have := get[v1alpha1.WindowsInstance](t, at, contract.OperatorNamespace, name).Spec.RemovalPolicy
		if have == v1alpha1.RemovalForce {
			t.Errorf("a later removal of %s would be forced", name)
		}
	}
}

func pauseCommands(t *testing.T, at *terminal) {
	t.Helper()
	paused := func(want bool) {
		t.Helper()
		if have := get[v1alpha1.WindowsInstance](t, at, contract.OperatorNamespace, "10.0.0.2").Spec.Paused; have != want {
			t.Errorf("paused is %t", have)
		}
	}
	at.expect(t, 0, []string{"(dry run)"}, "pause", "10.0.0.2", "--dry-run=client")
	at.expect(t, 0, []string{"(server dry run)"}, "pause", "10.0.0.2", "--dry-run=server")
	paused(false)
	at.expect(t, 0, []string{"host 10.0.0.2 paused"}, "pause", "10.0.0.2")
	paused(true)
	at.expect(t, 0, []string{"paused already"}, "pause", "10.0.0.2")
	at.expect(t, 0, []string{"host 10.0.0.2 resumed"}, "resume", "--all")
	paused(false)
	at.expect(t, 1, []string{"no host is named nobody"}, "pause", "nobody")
	at.expect(t, 1, []string{"specify hosts"}, "pause")
	at.expect(t, 1, []string{"not halted"}, "resume", "--rollout")

	config := get[v1alpha1.WindowsMachineConfig](t, at, "", contract.MachineConfigObject)
	config.Status.Rollout = v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutHalted, Revision: "0.2.0-b"}
	if err := at.Status().Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	at.expect(t, 0, []string{"rollout of 0.2.0-b continues"}, "resume", "--rollout")
	config = get[v1alpha1.WindowsMachineConfig](t, at, "", contract.MachineConfigObject)
	if config.Annotations[contract.ResumeRolloutAnnotation] != "0.2.0-b" {
		t.Errorf("%v", config.Annotations)
	}
}

func rebootCommand(t *testing.T, at *terminal) {
	t.Helper()
	at.expect(t, 1, []string{"does not belong to the operator"}, "reboot", "win-1", "--yes")
	node := get[corev1.Node](t, at, "", "win-1")
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, contract.InstanceAnnotation, contract.OperatorNamespace+"/10.0.0.1")
	if err := at.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	at.expect(t, 1, []string{"not confirmed"}, "reboot", "win-1")
	if code, _, errOut := at.run(t.Context(), "y\n", "reboot", "10.0.0.1"); code != 0 {
		t.Error(errOut)
	}
	if _, requested := get[corev1.Node](t, at, "", "win-1").Annotations[contract.RebootRequestedAnnotation]; !requested {
		t.Error("no reboot is requested")
	}
}

// entries returns the entries in windows-instances.
func entries(t *testing.T, at *terminal) map[string]string {
	t.Helper()
	return get[corev1.ConfigMap](t, at, contract.OperatorNamespace, contract.InstancesConfigMap).Data
}

func addCommand(t *testing.T, at *terminal) {
	t.Helper()
	at.expect(t, 1, []string{"W101"}, "add", "10.0.0.999", "--username", "Administrator")
	at.expect(t, 1, []string{"no Windows user name has"}, "add", "10.0.0.9", "--username", "a/b")
	at.expect(t, 1, []string{"listed already"}, "add", "10.0.0.2", "--username", "other")
	at.expect(t, 0, []string{"(dry run)"}, "add", "10.0.0.9", "--username", "Administrator", "--dry-run=client")
	before := entries(t, at)
	at.expect(t, 0, []string{"host 10.0.0.9 added"}, "add", "10.0.0.9", "--username", "Administrator", "--port", "2222")
	before["10.0.0.9"] = "username=Administrator\nport=2222"
	if diff := cmp.Diff(before, entries(t, at)); diff != "" {
		t.Error(diff)
	}
	at.expect(t, 0, nil, "add", "10.0.0.9", "--username", "other", "--overwrite")
	if entries(t, at)["10.0.0.9"] != "username=other" {
		t.Error("the entry was not overwritten")
	}
	at.expect(t, 0, nil, "add", "10.0.0.3", "--username", "svc wmco", "--overwrite", "--host-key",
		"10.0.0.3 ssh-ed25519 AAAAC3Nz a comment, too")
	if list := get[corev1.ConfigMap](t, at, contract.OperatorNamespace, contract.InstancesConfigMap); list.BinaryData["10.0.0.3"] != nil ||
		list.Data["10.0.0.3"] == "" {
		t.Errorf("an entry in UTF-16 was not corrected: %v", list)
	}
	at.expect(t, 0, nil, "add", "Win-9.example.com", "--username", "x")
	at.expect(t, 1, []string{"W103"}, "add", "win-9.example.com", "--username", "x")
	at.expect(t, 1, []string{"listed already, as Win-9.example.com"}, "add", "WIN-9.example.com", "--username", "x")
	addFile(t, at)
	waiting(t, at)
}

// addFile adds hosts from files. If one host in a file is invalid, none of its hosts may be added.
func addFile(t *testing.T, at *terminal) {
	t.Helper()
	before := entries(t, at)
	add := func(code int, want, text string, args ...string) {
		t.Helper()
		have, out, errOut := at.run(t.Context(), text, append([]string{"add", "-f", "-"}, args...)...)
		if have != code || !strings.Contains(out+errOut, want) {
			t.Errorf("%q: %d, %s%s, want %d with %q", text, have, out, errOut, code, want)
		}
	}
	add(1, "W101", "address,username\n10.9.0.1,Administrator\n10.9.0.999,Administrator\n")
	add(1, "has no username", "address\n10.9.0.1\n")
	add(1, "twice", "address,username\n10.9.0.1,x\n10.9.0.1,y\n")
	add(1, "wrong number of fields", "address,username\n10.9.0.1\n")
	add(1, "unknown setting password", "address,password\n10.9.0.1,x\n")
	add(1, "not a number", "address,port\n10.9.0.1,ssh\n", "--username", "x")
	add(1, "first line", "10.9.0.1,Administrator\n10.9.0.2,Administrator\n")
	add(1, "listed already with other settings", "address,username\n10.9.0.1,x\n10.0.0.9,y\n")
	if diff := cmp.Diff(before, entries(t, at)); diff != "" {
		t.Errorf("part of a file was added: %s", diff)
	}
	add(0, "host 10.9.0.2 added", "# our hosts\naddress, username, port\n10.9.0.1, Administrator,22\n10.9.0.2,,2222\n",
		"--username", "wmco")
	before["10.9.0.1"], before["10.9.0.2"] = "username=Administrator", "username=wmco\nport=2222"
	if diff := cmp.Diff(before, entries(t, at)); diff != "" {
		t.Error(diff)
	}
	at.expect(t, 1, []string{"reading hosts"}, "add", "-f", filepath.Join(t.TempDir(), "absent.csv"))
	at.expect(t, 1, []string{"unknown command"}, "add", "10.9.0.1", "-f", "hosts.csv")
}

// waiting tests that add and remove wait for the operator. The test simulates the operator.
func waiting(t *testing.T, at *terminal) {
	t.Helper()
	at.expect(t, 1, []string{"not Ready within 1s: 10.9.0.3", "the operator has not begun"}, "add", "10.9.0.3",
		"--username", "x", "--wait", "--timeout", "1s")
	host := instance("10.9.0.3", &v1alpha1.Source{Kind: v1alpha1.SourceConfigMap, Name: "10.9.0.3"},
		v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseConnecting, Failures: 1,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue,
				Reason: string(contract.ReasonKeyRefused), LastTransitionTime: metav1.Now(),
				Message: contract.NewProblem(contract.ReasonKeyRefused, "no such key").Explain()}}})
	at.create(t, host)
	errOut, in := io.Pipe()
	ended := make(chan int, 1)
	run := func(args ...string) {
		ended <- kubectlwindows.Run(t.Context(), append([]string{"kubectl-windows", "--kubeconfig", at.kubeconfig},
			args...), genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: in})
	}
	lines := bufio.NewScanner(errOut)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.Contains(lines.Text(), want) {
			t.Fatalf("the next line is %q, want %q", lines.Text(), want)
		}
	}
	go run("add", "10.9.0.3", "--username", "x", "--wait")
	next("10.9.0.3: Connecting: W202 KeyRefused: no such key")
	next("fix: Add the public key")
	host.Status = v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseReady, Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "NodeReady",
		LastTransitionTime: metav1.Now()}}}
	if err := at.Status().Update(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	next("10.9.0.3: Ready after")
	if code := <-ended; code != 0 {
		t.Errorf("add --wait ended with %d", code)
	}
	go run("remove", "10.9.0.3", "--yes", "--wait")
	next("10.9.0.3: Ready")
	if err := at.Delete(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	next("10.9.0.3: removed after")
	if code := <-ended; code != 0 {
		t.Errorf("remove --wait ended with %d", code)
	}
}

func removeCommand(t *testing.T, at *terminal) {
	t.Helper()
	at.expect(t, 1, []string{"not confirmed"}, "remove", "10.0.0.2")
	at.expect(t, 1, []string{"belongs to a Machine"}, "remove", "machine-a", "--yes")
	at.expect(t, 1, []string{"no host is named nobody"}, "remove", "nobody", "--yes")
	at.expect(t, 0, []string{"dry run"}, "remove", "10.0.0.2", "--force", "--dry-run=server")
	refusedRemoval(t, at)
	before := entries(t, at)
	at.expect(t, 0, []string{"host 10.0.0.2 is being removed"}, "remove", "10.0.0.2", "--force", "--yes")
	delete(before, "10.0.0.2")
	if diff := cmp.Diff(before, entries(t, at)); diff != "" {
		t.Error(diff)
	}
	have := get[v1alpha1.WindowsInstance](t, at, contract.OperatorNamespace, "10.0.0.2").Spec.RemovalPolicy
	if have != v1alpha1.RemovalForce {
		t.Errorf("policy %s", have)
	}
	at.expect(t, 0, nil, "remove", "10.0.0.9", "--yes") // this host has no instance yet
	at.expect(t, 0, nil, "remove", "10.0.0.4", "--yes") // this entry is in UTF-16
	if list := get[corev1.ConfigMap](t, at, contract.OperatorNamespace, contract.InstancesConfigMap); list.BinaryData["10.0.0.4"] != nil {
		t.Errorf("an entry in UTF-16 is still listed: %v", list)
	}

	// The entry of this host was removed while the operator wasn't running, so the operator hasn't removed the host.
	// Meanwhile the host was destroyed.
	at.create(t, instance("10.0.0.8", &v1alpha1.Source{Kind: v1alpha1.SourceConfigMap, Name: "10.0.0.8"},
		v1alpha1.WindowsInstanceStatus{}))
	at.expect(t, 0, []string{"host 10.0.0.8 is being removed"}, "remove", "10.0.0.8", "--force", "--yes")
	have = get[v1alpha1.WindowsInstance](t, at, contract.OperatorNamespace, "10.0.0.8").Spec.RemovalPolicy
	if have != v1alpha1.RemovalForce {
		t.Errorf("without its entry, a host has the policy %s", have)
	}

	at.create(t, instance("mine", nil, v1alpha1.WindowsInstanceStatus{}))
	at.expect(t, 0, nil, "remove", "mine", "--yes")
	err := at.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace, Name: "mine"},
		&v1alpha1.WindowsInstance{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the instance still exists: %v", err)
	}
}

// get reads an object from the API server.
func get[T any, P interface {
	*T
	client.Object
}](t *testing.T, at *terminal, namespace, name string) P {
	t.Helper()
	object := P(new(T))
	if err := at.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		t.Fatal(err)
	}
	return object
}

// TestA75_LogsOfANodeAreItsEnd reads the ends of logs. It serves them from a folder in the same way as kubelet.
func TestA75_LogsOfANodeAreItsEnd(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	for file, text := range map[string]string{"wicd/windows-instance-config-daemon.exe.INFO": "daemon begins, daemon ends",
		"kubelet/kubelet.log": "kubelet begins", "hybrid-overlay/hybrid-overlay.log": "overlay begins"} {
		path := filepath.Join(logs, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	discovery := map[string]string{"/api": `{"kind":"APIVersions","versions":["v1"]}`, "/apis": `{"kind":"APIGroupList"}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"nodes","namespaced":false,` +
			`"kind":"Node","verbs":["get"]}]}`}
	const prefix = "/api/v1/nodes/win-1/proxy/logs/"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, prefix):
			http.StripPrefix(prefix, http.FileServer(http.Dir(logs))).ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/refused/proxy"):
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(apierrors.NewForbidden(corev1.Resource("nodes"), "refused",
				errors.New("no right")).Status())
		case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
				ObjectMeta: metav1.ObjectMeta{Name: strings.TrimPrefix(r.URL.Path, "/api/v1/nodes/")}})
		case discovery[r.URL.Path] != "":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, discovery[r.URL.Path])
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	at := (&terminal{}).with(t, &rest.Config{Host: server.URL})
	for want, args := range map[string][]string{
		"daemon begins, daemon ends": nil,
		"kubelet begins":             {"--service", "kubelet"},
		"overlay begins":             {"--path", `hybrid-overlay\hybrid-overlay.log`},
	} {
		if out := at.expect(t, 0, nil, append([]string{"logs", "win-1"}, args...)...); out != want {
			t.Errorf("%v: %q, want %q", args, out, want)
		}
	}
	at.expect(t, 0, []string{"kubelet"}, "logs", "win-1", "--path", "/")
	at.expect(t, 1, []string{"reading log /absent/absent.log of node win-1"}, "logs", "win-1", "--service", "absent")
	at.expect(t, 1, []string{`node refused: nodes "refused" is forbidden: no right`}, "logs", "refused")
	recentLines(t, at, filepath.Join(logs, "kubelet", "kubelet.log"))
	followedLog(t, at, filepath.Join(logs, "kubelet", "kubelet.log"))
}

// recentLines reads the last lines of two logs. The first is in the format of klog, from a host in a different time
// zone. The lines of the second contain a time zone.
func recentLines(t *testing.T, at *terminal, file string) {
	t.Helper()
	east := time.FixedZone("east", 19800)
	written := time.Now().Truncate(time.Second)
	var klog, rfc strings.Builder
	const lines = 3000
	for i := range lines {
		then := written.Add(time.Duration(i+1-lines) * time.Minute)
		fmt.Fprintf(&klog, "I%s    123 kubelet.go:1] line %d is long enough to need more than one request\n",
			then.In(east).Format("0102 15:04:05.000000"), i)
		fmt.Fprintf(&rfc, "time=%s level=INFO msg=\"line %d\"\n  goes on\n", then.In(east).Format(time.RFC3339), i)
	}
	for name, text := range map[string]string{"klog": klog.String(), "RFC 3339": rfc.String()} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, written, written); err != nil {
			t.Fatal(err)
		}
		each := strings.Count(text, "\n") / lines
		for want, args := range map[int][]string{
			7:           {"--tail", "7"},
			2500:        {"--tail", "2500"},
			9000:        {"--tail", "9000"},
			10 * each:   {"--since", "9m30s"},
			2400 * each: {"--since", "39h59m30s"},
			2:           {"--since", "9m30s", "--tail", "2"},
		} {
			want = min(want, lines*each)
			args = append([]string{"logs", "win-1", "--service", "kubelet"}, args...)
			out := at.expect(t, 0, nil, args...)
			if have := strings.Count(out, "\n"); have != want || !strings.HasSuffix(text, out) {
				t.Errorf("%s, %v: %d lines, want %d: %.200s", name, args, have, want, out)
			}
		}
	}
	if err := os.WriteFile(file, []byte("no time here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	at.expect(t, 1, []string{"have no time"}, "logs", "win-1", "--service", "kubelet", "--since", "1m")
	at.expect(t, 1, []string{"above zero"}, "logs", "win-1", "--tail", "-1")
}

// followedLog follows a log while the test appends to it and rotates it.
func followedLog(t *testing.T, at *terminal, file string) {
	t.Helper()
	if err := os.WriteFile(file, []byte("one\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	in, out := io.Pipe()
	var problems bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- kubectlwindows.Run(ctx, []string{"kubectl-windows", "--kubeconfig", at.kubeconfig, "logs", "win-1",
			"--service", "kubelet", "--tail", "1", "-f"}, genericiooptions.IOStreams{Out: out, ErrOut: &problems})
		_ = out.Close()
	}()
	lines := bufio.NewScanner(in)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the next line is %q, want %q", lines.Text(), want)
		}
	}
	next("two")
	for _, step := range []struct {
		mode  int
		lines string
	}{{os.O_APPEND, "three\nfour\n"}, {os.O_TRUNC, "new\n"}, {os.O_APPEND, "last\n"}} {
		written, err := os.OpenFile(file, os.O_WRONLY|step.mode, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = written.WriteString(step.lines); err != nil {
			t.Fatal(err)
		}
		if err = written.Close(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(step.lines) {
			next(strings.TrimSuffix(line, "\n"))
		}
	}
	// The log doesn't exist for a while.
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3500 * time.Millisecond)
	if err := os.WriteFile(file, []byte("b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	next("b")
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("after Ctrl-C, the exit code is %d", code)
	}
	if n := strings.Count(problems.String(), "error:"); n != 1 {
		t.Errorf("the outage was reported %d times: %s", n, problems.String())
	}
}
