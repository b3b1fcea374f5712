package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/kubectlwindows"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/test/page"
)

// quickStart is a page whose commands a test runs.
type quickStart struct {
	page string
	// here replaces the page's example values with values of the lab.
	here *strings.Replacer
	// kubeconfig and kubectl belong to the lab. readers is a kubeconfig that has a namespace, as a reader's kubeconfig
	// may have.
	kubeconfig, kubectl, readers string
}

func (s *stage) quickStart(t *testing.T, file, address string) *quickStart {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "docs", file))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(s.Cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range config.Contexts {
		of.Namespace = metav1.NamespaceDefault
	}
	readers := filepath.Join(t.TempDir(), "kubeconfig")
	if err = clientcmd.WriteToFile(*config, readers); err != nil {
		t.Fatal(err)
	}
	return &quickStart{page: string(content), here: strings.NewReplacer("192.0.2.10", address),
		kubeconfig: s.Cluster.Kubeconfig, kubectl: s.Cluster.Binaries.Kubectl, readers: readers}
}

// command returns the command of the page that begins with a text.
func (q *quickStart) command(t *testing.T, beginning string) string {
	t.Helper()
	text, err := page.Command(q.page, beginning)
	if err != nil {
		t.Fatal(err)
	}
	return q.here.Replace(text)
}

// run runs a command of the page. further are additional arguments for the plugin, such as a host's port in the lab.
func (q *quickStart) run(t *testing.T, beginning string, further ...string) string {
	t.Helper()
	text := q.command(t, beginning)
	var out bytes.Buffer
	if arguments, plugin := strings.CutPrefix(text, "kubectl windows "); plugin {
		words := slices.DeleteFunc(strings.Fields(arguments), func(word string) bool { return word == "--watch" })
		code := kubectlwindows.Run(t.Context(), slices.Concat([]string{"kubectl-windows", "--kubeconfig", q.kubeconfig},
			words, further), genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out})
		if code != 0 {
			t.Fatalf("%s: exit code %d\n%s", text, code, &out)
		}
		return out.String()
	}
	shell := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", text)
	shell.Env = append(os.Environ(), "KUBECONFIG="+q.readers,
		"PATH="+filepath.Dir(q.kubectl)+string(os.PathListSeparator)+os.Getenv("PATH"))
	output, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", text, err, output)
	}
	return string(output)
}

// The test runs the page's commands: they add a host, run the web server on it, and remove both. It doesn't show that
// the web server answers, because the lab runs no containers.
func TestA91_TheCommandsOfTheQuickStartAddAHostRunTheWebServerAndRemoveBoth(t *testing.T) {
	t.Parallel()
	o := options(1)
	o.Kubernetes, o.Scheduler, o.Settings.Network.Type = true, true, v1alpha1.NetworkFlannel
	s := own(t, o)
	h := s.hosts(t, 1)[0]
	address, port := h.Address().Addr().String(), strconv.Itoa(int(h.Address().Port()))
	q := s.quickStart(t, "quickstart-flannel.md", address)

	if out := q.run(t, "kubectl apply --server-side -f - <<EOF"); !strings.Contains(out, "serverside-applied") {
		t.Errorf("the output of the command that sets the network: %s", out)
	}
	if out := q.run(t, "kubectl windows preflight ", "--port", port); !regexp.MustCompile(
		regexp.QuoteMeta(address) + ` +yes`).MatchString(out) {
		t.Errorf("the output of the host check: %s", out)
	}
	q.run(t, "kubectl windows add ", "--port", port)
	s.ready(t, h)
	if out := q.run(t, "kubectl windows status --watch"); !strings.Contains(out, "1 host: 1 Ready") {
		t.Errorf("the output of the status: %s", out)
	}

	q.run(t, "kubectl apply -f - <<EOF")
	web := &appsv1.Deployment{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "web"}, web); err != nil {
		t.Fatal(err)
	}
	s.placed(t, web, h.Name)
	if out := q.run(t, "kubectl get pods -l app=web"); !strings.Contains(out, h.Name) {
		t.Errorf("the list of pods: %s", out)
	}
	if out := q.run(t, "kubectl get service web"); !strings.Contains(out, "80:") {
		t.Errorf("the output for the Service: %s", out)
	}

	q.run(t, "kubectl delete deployment,service web")
	q.run(t, "kubectl windows remove ")
	s.gone(t, h)
}
