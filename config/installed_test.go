package config_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
)

// Several tests share these clusters. The tests don't change the installed objects, and use unique names for their
// own objects. The first test that needs a cluster starts it, and TestMain stops it.
var (
	installedOnce = sync.OnceValues(func() (*cluster.Cluster, error) { return together(install, prepare) })
	flannelOnce   = sync.OnceValues(func() (*cluster.Cluster, error) { return together(install, prepare, applyFlannel) })

	shared      []*cluster.Cluster
	sharedMutex sync.Mutex
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, lab := range shared {
		if err := lab.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// together starts a cluster that runs until TestMain stops it.
func together(steps ...step) (*cluster.Cluster, error) {
	lab, err := start(context.Background(), steps...)
	if err == nil {
		sharedMutex.Lock()
		defer sharedMutex.Unlock()
		shared = append(shared, lab)
	}
	return lab, err
}

// common returns a shared cluster with the installed manifests.
func common(t *testing.T) *cluster.Cluster {
	t.Helper()
	return once(t, installedOnce)
}

// withFlannel returns a shared cluster that also has the manifests for nodes on flannel's network.
func withFlannel(t *testing.T) *cluster.Cluster {
	t.Helper()
	return once(t, flannelOnce)
}

func once(t *testing.T, started func() (*cluster.Cluster, error)) *cluster.Cluster {
	t.Helper()
	plane.SkipIfShort(t)
	lab, err := started()
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// own starts a cluster for one test, and runs these steps in it.
func own(t *testing.T, steps ...step) *cluster.Cluster {
	t.Helper()
	plane.SkipIfShort(t)
	lab, err := start(t.Context(), steps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Stop(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

// step is done in a new cluster.
type step func(ctx context.Context, lab *cluster.Cluster) error

func start(ctx context.Context, steps ...step) (*cluster.Cluster, error) {
	lab, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if err = step(ctx, lab); err != nil {
			return nil, errors.Join(err, lab.Stop())
		}
	}
	return lab, nil
}

// kubectl runs kubectl in the folder config, as an administrator would.
func kubectl(ctx context.Context, lab *cluster.Cluster, args ...string) (string, error) {
	output, err := exec.CommandContext(ctx, lab.Binaries.Kubectl,
		append([]string{"--kubeconfig", lab.Kubeconfig}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

// offer creates namespaces.
func offer(ctx context.Context, lab *cluster.Cluster, names ...string) error {
	admin, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		return err
	}
	for _, name := range names {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err = admin.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// install applies the manifests, as an administrator would.
func install(ctx context.Context, lab *cluster.Cluster) error {
	// OpenShift has these namespaces. The Machine API's namespace is missing here, because not every cluster has it.
	if err := offer(ctx, lab, contract.MachineConfigNamespace, contract.ConfigNamespace); err != nil {
		return err
	}
	if _, err := kubectl(ctx, lab, "apply", "--server-side", "-k", "default"); err != nil {
		return err
	}
	if err := offer(ctx, lab, contract.MachineAPINamespace); err != nil {
		return err
	}
	if _, err := kubectl(ctx, lab, "apply", "--server-side", "-k", "machine-api"); err != nil {
		return err
	}
	_, err := kubectl(ctx, lab, "wait", "--for=condition=Established", "--timeout=30s", "crd",
		"windowsinstances."+contract.Prefix[:len(contract.Prefix)-1],
		"windowsmachineconfigs."+contract.Prefix[:len(contract.Prefix)-1])
	return err
}

// prepare creates the objects for the requests, except Windows Nodes, because each test has its own.
func prepare(ctx context.Context, lab *cluster.Cluster) error {
	admin, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		return err
	}
	var failures []error
	_, err = admin.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: linux, Labels: map[string]string{
			corev1.LabelOSStable: string(corev1.Linux), "node-role.kubernetes.io/control-plane": ""}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane",
			Effect: corev1.TaintEffectNoSchedule}}},
	}, metav1.CreateOptions{})
	failures = append(failures, err)
	for _, name := range []string{contract.InstancesConfigMap, "windows-services-0", "windows-services-1"} {
		_, err = admin.CoreV1().ConfigMaps(contract.OperatorNamespace).Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		failures = append(failures, err)
	}
	for _, secret := range []corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: contract.PrivateKeySecret}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "other"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-services-0"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-services-1"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: contract.BootstrapSecretPrefix + "1"},
			Type: contract.BootstrapSecretType},
		{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineConfigNamespace, Name: contract.BootstrapTokenSecret}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineConfigNamespace, Name: "other"}},
	} {
		_, err = admin.CoreV1().Secrets(secret.Namespace).Create(ctx, &secret, metav1.CreateOptions{})
		failures = append(failures, err)
	}
	_, err = admin.CoreV1().ServiceAccounts(contract.MachineConfigNamespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: contract.BootstrapServiceAccount}},
		metav1.CreateOptions{})
	failures = append(failures, err)
	_, err = admin.RbacV1().Roles(contract.OperatorNamespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: contract.ServicesReaderRole},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"},
			ResourceNames: []string{"windows-services-1"}, Verbs: []string{"list", "watch"},
		}},
	}, metav1.CreateOptions{})
	return errors.Join(append(failures, err)...)
}

// register creates a Windows Node, and returns its name.
func register(t *testing.T, admin kubernetes.Interface, meta metav1.ObjectMeta) string {
	t.Helper()
	meta.Annotations, meta.Labels = map[string]string{"example.com/kept": "yes"}, windowsLabels()
	node, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: meta,
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "os", Value: "Windows",
			Effect: corev1.TaintEffectNoSchedule}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node.Name
}

// two creates two Windows Nodes for one test.
func two(t *testing.T, admin kubernetes.Interface) (a, b string) {
	t.Helper()
	meta := metav1.ObjectMeta{GenerateName: "win-"}
	return register(t, admin, meta), register(t, admin, meta)
}

// The lab's manifests select from the installed manifests. The samples are tested unchanged.
func TestTheOtherManifestsFitWhatIsInstalled(t *testing.T) {
	t.Parallel()
	lab := common(t)
	do := func(args ...string) string {
		t.Helper()
		output, err := kubectl(t.Context(), lab, args...)
		if err != nil {
			t.Error(err)
		}
		return output
	}
	do("get", "-k", "lab", "-o", "name") // the command fails if an object does not exist
	do("apply", "--server-side", "-k", "lab")
	if warned := do("apply", "--server-side", "--dry-run=server", "-k", "samples"); strings.Contains(warned, "Warning") {
		t.Errorf("the samples: %s", warned)
	}
	do("kustomize", "monitoring") // only built, because the API server does not know these types
}
