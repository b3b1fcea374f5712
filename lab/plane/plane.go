// Package plane starts a control plane for one test, and stops it with the test.
//
// Tests that need a real API server use it. The tests run everything else themselves.
package plane

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// SkipIfShort skips a test that starts a control plane if Go's flag -short is set.
func SkipIfShort(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("skipped with -short, because this test starts a control plane")
	}
}

// Start starts a control plane. It prints its progress on standard error. With -short, it skips the test.
func Start(tb testing.TB, options cluster.Options) *cluster.Cluster {
	tb.Helper()
	SkipIfShort(tb)
	options.Progress = os.Stderr
	lab, err := cluster.Start(tb.Context(), options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := lab.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return lab
}

// Ship creates OpenShift's namespaces, and applies the manifests that this project ships.
func Ship(tb testing.TB, lab *cluster.Cluster) {
	tb.Helper()
	clients, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		tb.Fatal(err)
	}
	for _, name := range []string{contract.MachineConfigNamespace, contract.MachineAPINamespace,
		contract.ConfigNamespace} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err = clients.CoreV1().Namespaces().Create(tb.Context(), namespace, metav1.CreateOptions{}); err != nil {
			tb.Fatal(err)
		}
	}
	Apply(tb, lab, "lab")
}

// Apply applies a folder of config/, and waits until the API server serves our types.
func Apply(tb testing.TB, lab *cluster.Cluster, folder string) {
	tb.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		tb.Fatal(err)
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", filepath.Join(root, "config", folder)},
		{"wait", "--for=condition=Established", "--timeout=30s", "crd",
			"windowsinstances.windowsmachineconfig.openshift.io"},
	} {
		output, err := exec.CommandContext(tb.Context(), lab.Binaries.Kubectl,
			append([]string{"--kubeconfig", lab.Kubeconfig}, args...)...).CombinedOutput()
		if err != nil {
			tb.Fatalf("kubectl %v: %v\n%s", args, err, output)
		}
	}
}
