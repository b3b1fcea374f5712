package kubectlwindows_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/kubectlwindows"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// fewRights runs commands for a user who only has the right to read pods in one namespace.
func fewRights(t *testing.T, at *terminal) {
	t.Helper()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "developer"}}
	at.create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pods", Namespace: "default"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "pods", Namespace: "default"}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pods"}})
	developer := at.as(t, "developer")
	developer.expect(t, 2, []string{"/bin/sh is a Linux program", "UNREAD", "list resource \"windowsinstances\""},
		"why", "pod/win-1", "-n", "default")
	developer.expect(t, 1, []string{"no host, node or pod is named 10.0.0.2", "list resource \"windowsinstances\""},
		"why", "10.0.0.2")
	for _, args := range [][]string{{"status"}, {"pause", "10.0.0.2"}, {"add", "10.0.0.8", "--username", "x"},
		{"remove", "10.0.0.2", "--yes"}, {"reboot", "win-1", "--yes"}, {"logs", "win-1"}, {"drain-status", "win-1"}} {
		developer.expect(t, 1, []string{"is forbidden", "cannot"}, args...)
	}
}

func TestA75_AnArchiveThatIsNotWholeHasAnotherName(t *testing.T) {
	t.Parallel()
	flags := genericclioptions.NewConfigFlags(true)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	config, err := cluster.Kubeconfig(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	flags.KubeConfig = new(filepath.Join(t.TempDir(), "kubeconfig"))
	if err = os.WriteFile(*flags.KubeConfig, config, 0o600); err != nil {
		t.Fatal(err)
	}
	evidence, err := kubectlwindows.NewEvidence(flags, contract.OperatorNamespace, file, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	evidence.Add("a.txt", []byte("kept"))
	if _, err = os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the incomplete archive is named %s: %v", file, err)
	}
	if _, err = evidence.Close(); err != nil {
		t.Fatal(err)
	}
	if files := unpack(t, file); files["a.txt"] != "kept" {
		t.Errorf("the archive has %v", files)
	}
	if left, err := filepath.Glob(file + ".*"); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// twice tests two hosts with the same address. A command must not pick one of them.
func twice(t *testing.T, at *terminal) {
	t.Helper()
	hosts := []client.Object{instance("host-a", nil, v1alpha1.WindowsInstanceStatus{}),
		instance("host-b", nil, v1alpha1.WindowsInstanceStatus{})}
	for _, host := range hosts {
		host.(*v1alpha1.WindowsInstance).Spec.Address = "10.0.0.9"
	}
	at.create(t, hosts...)
	for _, args := range [][]string{{"why", "10.0.0.9"}, {"remove", "10.0.0.9", "--yes"}, {"pause", "10.0.0.9"},
		{"reboot", "10.0.0.9", "--yes"}} {
		at.expect(t, 1, []string{"10.0.0.9 is the address of host host-a, and the address of host host-b"}, args...)
	}
	// The name of one host is the name of the node of a different host.
	at.create(t, instance("win-1", nil, v1alpha1.WindowsInstanceStatus{}))
	at.expect(t, 1, []string{"win-1 is the node of host 10.0.0.1, and the name of host win-1"}, "remove", "win-1", "--yes")
	hosts = append(hosts, instance("win-1", nil, v1alpha1.WindowsInstanceStatus{}))
	at.expect(t, 0, []string{"host host-a paused"}, "pause", "host-a")
	for _, host := range hosts {
		if err := at.Delete(t.Context(), host); err != nil {
			t.Fatal(err)
		}
	}
}

// withoutAnOperator tests a cluster that doesn't have the operator's CRDs.
func withoutAnOperator(t *testing.T, at *terminal) {
	t.Helper()
	bare := at.behind(t, &front{hidden: "/apis/" + v1alpha1.GroupVersion().Group})
	const missing = "the operator is not installed"
	bare.expect(t, 1, []string{missing}, "status")
	bare.expect(t, 1, []string{missing}, "pause", "10.0.0.2")
	bare.expect(t, 1, []string{missing}, "remove", "10.0.0.2", "--yes")
	bare.expect(t, 2, []string{missing, "/bin/sh is a Linux program"}, "why", "pod/win-1", "-n", "default")
	bare.expect(t, 1, []string{missing}, "why", "nobody")
	bare.expect(t, 0, []string{"0 errors"}, "lint", "--live", "-n", "kube-system", "deployments")
}

// addsAtOnce adds many hosts at the same time, each with its own command. All hosts must be listed afterwards.
func addsAtOnce(t *testing.T, at *terminal) {
	t.Helper()
	const many = 15 // each conflict means that another command succeeded, so a command has at most 14 conflicts
	before := entries(t, at)
	var group errgroup.Group
	for i := range many {
		group.Go(func() error {
			code, out, errOut := at.run(t.Context(), "", "add", fmt.Sprintf("10.1.0.%d", i+1), "--username", "u")
			if code != 0 {
				return fmt.Errorf("%d: %s%s", code, out, errOut)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if have := len(entries(t, at)) - len(before); have != many {
		t.Errorf("%d of %d hosts are listed", have, many)
	}
}

// slowly tests an API server that never answers requests for WindowsInstances.
func slowly(t *testing.T, at *terminal) {
	t.Helper()
	slow := at.behind(t, &front{before: func(r *http.Request) {
		if strings.Contains(r.URL.Path, "/windowsinstances") {
			<-r.Context().Done()
		}
	}})
	slow.expect(t, 1, []string{"listing WindowsInstances", "timeout=300ms"}, "status", "--request-timeout=300ms")
}

// fleetOf500 checks how many requests each command sends in a cluster with 500 hosts.
func fleetOf500(t *testing.T, at *terminal) {
	t.Helper()
	const hosts = 500
	var group errgroup.Group
	group.SetLimit(16)
	for i := range hosts {
		group.Go(func() error {
			name := fmt.Sprintf("fleet-%03d", i)
			at.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: map[string]string{corev1.LabelOSStable: "windows"}}},
				instance(name, nil, v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseReady, NodeName: name}))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"status": {"status", "-o", "json"},
		"why": {"why", "fleet-250", "-o", "json"}} {
		f := &front{}
		code, out, errOut := at.behind(t, f).run(t.Context(), "", args...)
		if code == 1 || !json.Valid([]byte(out)) {
			t.Errorf("%s: %d %s", name, code, errOut)
		}
		// The requests are discovery of two groups, two lists and two objects. For one host there are three more: the
		// pod with the host's name, and two lists of events.
		if most := int32(12); f.requests.Load() > most {
			t.Errorf("%s: %d requests, want at most %d", name, f.requests.Load(), most)
		}
	}
}

// hostileFormats simulates a host that writes control characters of terminals and text that is invalid in YAML.
func hostileFormats(t *testing.T, at *terminal) {
	t.Helper()
	const hostile = "\u009b2J \u202egnp.exe \x7f"
	at.create(t, instance("hostile", nil, v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseConnecting, Failures: 1,
		NodeName: "win-hostile", Conditions: []metav1.Condition{{Type: v1alpha1.ConditionProgressing,
			Status: metav1.ConditionTrue, Reason: string(contract.ReasonKeyRefused), LastTransitionTime: metav1.Now(),
			Message: hostile}}}),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-hostile", Labels: map[string]string{
			corev1.LabelOSStable: "windows"}, Annotations: map[string]string{contract.ApplyStatusAnnotation: hostile}}})
	for _, format := range []string{"", "wide", "json", "yaml"} {
		for _, args := range [][]string{{"status"}, {"why", "hostile"}} {
			out := at.expect(t, 2, nil, append(args, "--output="+format)...)
			if strings.ContainsAny(out, "\u009b\u202e\x7f") {
				t.Errorf("%v --output=%s: %q", args, format, out)
			}
			if format == "json" && !json.Valid([]byte(out)) {
				t.Errorf("not JSON: %q", out)
			}
		}
	}
	var status struct {
		Hosts []struct{ Name, Message string } `json:"hosts"`
	}
	if err := json.Unmarshal([]byte(at.expect(t, 2, nil, "status", "-o", "json")), &status); err != nil {
		t.Fatal(err)
	}
	for _, h := range status.Hosts {
		if h.Name == "hostile" && h.Message != hostile {
			t.Errorf("the message is %q", h.Message)
		}
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	at.expect(t, 0, nil, "bundle", "--file", file, "--nodes", "win-hostile")
	for name, text := range unpack(t, file) {
		if strings.ContainsAny(text, "\u009b\u202e\x7f") {
			t.Errorf("%s: %q", name, text)
		}
		if name == "objects/nodes.yaml" && !strings.Contains(text, "gnp.exe") {
			t.Errorf("the output lacks the node:\n%s", text)
		}
	}
	if err := at.Delete(t.Context(), get[v1alpha1.WindowsInstance](t, at, contract.OperatorNamespace, "hostile")); err != nil {
		t.Fatal(err)
	}
	at.with(t, &rest.Config{Host: "https://127.0.0.1:1"}).expect(t, 1, []string{`"\x1b[2J.yaml"`}, "lint",
		"\x1b[2J.yaml")
}
