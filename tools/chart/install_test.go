package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// Helm's own command installs the chart on a real API server. The release is installed, upgraded, and removed. While a
// host is joined, the removal must be refused. After the removal, it must be possible to install the chart again.
func TestA65_TheChartIsInstalledUpgradedAndRemoved(t *testing.T) {
	t.Parallel()
	t.Run("OpenShift", func(t *testing.T) {
		t.Parallel()
		lifecycle(t, []string{contract.MachineConfigNamespace, contract.ConfigNamespace, contract.MachineAPINamespace},
			[]string{contract.MachineConfigNamespace}, infrastructure)
	})
	t.Run("Kubernetes", func(t *testing.T) {
		t.Parallel()
		lifecycle(t, []string{flannel}, []string{"kube-public", flannel}, "")
	})
}

// flannel is the namespace in flannel's manifests.
const flannel = "kube-flannel"

// lifecycle tests the chart on a cluster with additional namespaces and objects. In the namespaces rightsIn, the
// operator must have rights.
func lifecycle(t *testing.T, namespaces, rightsIn []string, objects string) {
	t.Helper()
	lab, err := cluster.Start(t.Context(), cluster.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Stop(); err != nil {
			t.Error(err)
		}
	})
	admin, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err = admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// This CRD in OpenShift's group must not make the chart believe that the cluster is OpenShift, because copied
	// manifests can also contain such a CRD.
	copied := filepath.Join(t.TempDir(), "crd.yaml")
	if err = os.WriteFile(copied, []byte(crd), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = cluster.InstallCRDs(t.Context(), lab.Admin(), cluster.CRDOptions{Paths: []string{copied}}); err != nil {
		t.Fatal(err)
	}
	kubectl := func(input string, args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), lab.Binaries.Kubectl, append([]string{"--kubeconfig", lab.Kubeconfig}, args...)...)
		c.Stdin = strings.NewReader(input)
		if output, err := c.CombinedOutput(); err != nil {
			t.Fatalf("kubectl %s: %v: %s", args[0], err, output)
		}
	}
	if objects != "" {
		kubectl(objects, "create", "-f", "-")
	}
	do := func(args ...string) error {
		_, err := run(t, []string{"KUBECONFIG=" + lab.Kubeconfig}, helm, args...)
		return err
	}
	if err = do("install", "wmco", made); err != nil {
		t.Fatal(err)
	}
	for what, args := range map[string][]string{
		"a second release":                      {"again"},
		"a second release in another namespace": {"again", "--namespace", "elsewhere", "--create-namespace"},
		"one of the same name in another":       {"wmco", "--namespace", "elsewhere", "--create-namespace"},
	} {
		if err = do(append([]string{"install"}, append(args, made)...)...); err == nil ||
			!strings.Contains(err.Error(), namespace) {
			t.Errorf("%s was not refused: %v", what, err)
		}
	}
	if err = do("upgrade", "wmco", made, "--set", "replicas=2"); err != nil {
		t.Fatal(err)
	}
	for _, in := range rightsIn {
		if roles, err := admin.RbacV1().Roles(in).List(t.Context(), metav1.ListOptions{}); err != nil ||
			!slices.ContainsFunc(roles.Items, func(r rbacv1.Role) bool { return strings.HasPrefix(r.Name, operator) }) {
			t.Errorf("the operator has no rights in %s: %v", in, err)
		}
	}
	deployment, err := admin.AppsV1().Deployments(namespace).Get(t.Context(), operator, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *deployment.Spec.Replicas != 2 {
		t.Errorf("after the upgrade, the Deployment has %d replicas, want 2", *deployment.Spec.Replicas)
	}

	check := program(t)
	_, rights, err := lab.ServiceAccountConfig(t.Context(), namespace, operator, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err = os.WriteFile(kubeconfig, rights, 0o600); err != nil {
		t.Fatal(err)
	}
	said := ""
	remove := func() error {
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			output, err := runJob(ctx, admin, check, kubeconfig)
			said = string(output)
			ended <- err
		}()
		err := do("uninstall", "wmco", "--timeout", "3m")
		cancel()
		if failed := <-ended; failed != nil && !errors.Is(failed, context.Canceled) {
			t.Fatal(failed)
		}
		return err
	}
	kubectl(instance, "create", "-f", "-")
	if err = remove(); err == nil {
		t.Error("the release was removed while a host was joined")
	}
	if _, err = admin.AppsV1().Deployments(namespace).Get(t.Context(), operator, metav1.GetOptions{}); err != nil {
		t.Errorf("the operator was removed: %v", err)
	}
	// After a refused removal, a user who wants to keep the release must follow the Job's message. Until then, Helm
	// can't upgrade the release.
	if err = do("upgrade", "wmco", made); err == nil {
		t.Error("Helm can upgrade a release whose removal was refused, so the Job's advice is not necessary")
	}
	advice := regexp.MustCompile("`helm (rollback [^`]*)`").FindStringSubmatch(said)
	if advice == nil {
		t.Fatalf("the Job's message does not say how to keep the release: %s", said)
	}
	if err = errors.Join(do(strings.Fields(advice[1])...), do("upgrade", "wmco", made, "--set", "replicas=3")); err != nil {
		t.Error(err)
	}
	kubectl("", "delete", "windowsinstance", "10.0.0.1", "-n", namespace)
	if err = remove(); err != nil {
		t.Fatal(err)
	}
	_, err = admin.AppsV1().Deployments(namespace).Get(t.Context(), operator, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the operator was not removed: %v", err)
	}
	kubectl("", "get", "namespace", namespace) // the namespace contains the SSH key
	kubectl("", "get", "crd", "windowsinstances.windowsmachineconfig.openshift.io")
	if err = do("install", "wmco", made); err != nil {
		t.Errorf("the chart can't be installed again: %v", err)
	}
}

const instance = `apiVersion: windowsmachineconfig.openshift.io/v1alpha1
kind: WindowsInstance
metadata: {namespace: ` + namespace + `, name: 10.0.0.1}
spec: {address: 10.0.0.1, username: Administrator}
`

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: infrastructures.config.openshift.io
spec:
  group: config.openshift.io
  scope: Cluster
  names: {kind: Infrastructure, listKind: InfrastructureList, plural: infrastructures, singular: infrastructure}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

const infrastructure = `{apiVersion: config.openshift.io/v1, kind: Infrastructure, metadata: {name: cluster}}`

// program builds the operator's program, which the hook's Job runs.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), operator)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/wmco")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the operator: %v: %s", err, output)
	}
	return path
}

// runJob replaces kubelet and the Job controller, which the lab lacks: it waits for the hook's Job, runs its arguments
// with the rights of the Job's service account, and writes the Job's status. It returns the program's output.
func runJob(ctx context.Context, admin kubernetes.Interface, program, kubeconfig string) ([]byte, error) {
	jobs := admin.BatchV1().Jobs(namespace)
	var job *batchv1.Job
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		found, err := jobs.Get(ctx, operator+"-uninstall", metav1.GetOptions{})
		// This is the Job of the previous try.
		if apierrors.IsNotFound(err) || err == nil && found.Status.StartTime != nil {
			return false, nil
		}
		job = found
		return err == nil, err
	})
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, program, job.Spec.Template.Spec.Containers[0].Args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	now := metav1.Now()
	job.Status.StartTime = &now
	first, second := batchv1.JobSuccessCriteriaMet, batchv1.JobComplete
	output, failed := c.CombinedOutput()
	if failed == nil {
		job.Status.Succeeded, job.Status.CompletionTime = 1, &now
	} else {
		first, second = batchv1.JobFailureTarget, batchv1.JobFailed
		job.Status.Failed = 1
	}
	for _, kind := range []batchv1.JobConditionType{first, second} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind,
			Status: corev1.ConditionTrue, LastTransitionTime: now, LastProbeTime: now})
	}
	_, err = jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{})
	return output, err
}
