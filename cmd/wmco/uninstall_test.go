package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

func TestA65_TheOperatorIsNotRemovedWhileHostsAreJoined(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	foreign := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "another", Name: "a"}}
	if err := c.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := checkUninstall(t.Context(), c, "ns", io.Discard); err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		i := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("10.0.0.%02d", n)}}
		if n == 0 {
			i.Spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine}
		}
		if err := c.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	err := checkUninstall(t.Context(), c, "ns", io.Discard)
	if err == nil {
		t.Fatal("hosts would be left without an operator")
	}
	for _, want := range []string{"12 WindowsInstances", "10.0.0.09, and 2 more", "windows-instances",
		"for 1 of them, scale the MachineSet to 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
}

// inPod is a script that creates the files that every pod has at fixed paths, and then runs a program.
const inPod = `mount -t tmpfs none /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
echo token >/var/run/secrets/kubernetes.io/serviceaccount/token
exec "$0" "$@"`

// `make undeploy` may run in a pod with a kubeconfig for a different cluster. kubectl then deletes from the cluster in
// the kubeconfig. So the check must connect to that cluster, print its address, and report that it has no CRDs. The
// test is skipped if it can't mount files.
func TestA65_TheClusterIsAskedFromWhichKubectlDeletes(t *testing.T) {
	t.Parallel()
	const again = "WMCO_TEST_ARGUMENTS"
	if args := os.Getenv(again); args != "" { // a child process, because clientcmd reads HOME at its start
		command := newCommand()
		command.SetArgs(strings.Fields(args))
		if err := command.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	var asked atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch r.URL.Path {
		case "/api":
			_, _ = io.WriteString(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
		case "/apis":
			_, _ = io.WriteString(w, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`)
		default:
			http.NotFound(w, r)
		}
	}))
	defer api.Close()
	home := t.TempDir()
	file := filepath.Join(home, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: home,
contexts: [{name: home, context: {cluster: home}}], clusters: [{name: home, cluster: {server: "`+api.URL+`"}}]}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	run := []string{os.Args[0], "-test.run", "^" + t.Name() + "$"}
	pod := []string{"unshare", "-rm", "sh", "-ec", inPod}
	if exec.CommandContext(t.Context(), pod[0], append(pod[1:], "true")...).Run() == nil {
		run = append(pod, run...)
	}
	for args, home := range map[string]string{"uninstall-check": home, "uninstall-check --kubeconfig " + file: t.TempDir()} {
		asked.Store(0)
		c := exec.CommandContext(t.Context(), run[0], run[1:]...)
		c.Env = append(os.Environ(), again+"="+args, "HOME="+home, "KUBECONFIG=", "KUBERNETES_SERVICE_HOST=127.0.0.1",
			"KUBERNETES_SERVICE_PORT=1")
		output, err := c.CombinedOutput()
		if err != nil || asked.Load() == 0 {
			t.Errorf("%s: the cluster got %d requests: %v\n%s", args, asked.Load(), err, output)
		}
		for _, want := range []string{api.URL, "has no WindowsInstances: their CRD is not there"} {
			if !strings.Contains(string(output), want) {
				t.Errorf("%s: the output lacks %q:\n%s", args, want, output)
			}
		}
	}
}
