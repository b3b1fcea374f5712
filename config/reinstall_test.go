package config_test

import (
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

const (
	instancesCRD = "windowsinstances.windowsmachineconfig.openshift.io"
	joinedHost   = `apiVersion: windowsmachineconfig.openshift.io/v1alpha1
kind: WindowsInstance
metadata:
  namespace: ` + contract.OperatorNamespace + `
  name: 10.0.0.1
  finalizers: [windowsmachineconfig.openshift.io/host]
spec: {address: 10.0.0.1, username: Administrator}
`
	withoutFinalizer = `{"metadata":{"finalizers":null}}`
)

// A user removed a part of the installation. Then the user installs again over the remaining objects, with `kubectl
// apply --server-side -k config/default`.
func TestA65_ItIsInstalledOverWhatARemovalLeft(t *testing.T) {
	t.Parallel()
	lab := own(t, install)
	try := func(input string, args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), lab.Binaries.Kubectl, append([]string{"--kubeconfig", lab.Kubeconfig}, args...)...)
		c.Stdin = strings.NewReader(input)
		output, err := c.CombinedOutput()
		return string(output), err
	}
	do := func(input string, args ...string) {
		t.Helper()
		if output, err := try(input, args...); err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, output)
		}
	}
	apply := []string{"apply", "--server-side", "-k", "default"}
	inNamespace := []string{"-n", contract.OperatorNamespace}
	free := func() { // the steps of docs/install.md
		do("", append([]string{"patch", "windowsinstance", "10.0.0.1", "--type=merge", "-p", withoutFinalizer}, inNamespace...)...)
	}

	t.Run("the namespace was deleted; CRDs, roles and policies are left", func(t *testing.T) {
		do("", "delete", "namespace", contract.OperatorNamespace, "--timeout=60s")
		do("", apply...)
		expectInstalled(t, lab)
	})
	t.Run("the namespace waits for the finalizer of a host", func(t *testing.T) {
		do(joinedHost, "create", "-f", "-")
		do("", "delete", "namespace", contract.OperatorNamespace, "--wait=false")
		// While the content of the namespace is being deleted, apply still works on the remaining objects.
		do("", append([]string{"wait", "--for=delete", "deployment/" + contract.OperatorServiceAccount,
			"--timeout=60s"}, inNamespace...)...)
		output, err := try("", apply...)
		if err == nil || !strings.Contains(output, contract.OperatorNamespace+" because it is being terminated") {
			t.Errorf("apply succeeded in a namespace that is being deleted: %v: %s", err, output)
		}
		free()
		do("", "wait", "--for=delete", "namespace/"+contract.OperatorNamespace, "--timeout=60s")
		do("", apply...)
		expectInstalled(t, lab)
	})
	t.Run("a CRD waits for the finalizer of a host", func(t *testing.T) {
		do(joinedHost, "create", "-f", "-")
		do("", "delete", "crd", instancesCRD, "--wait=false")
		do("", apply...)
		output, err := try(strings.Replace(joinedHost, "10.0.0.1", "10.0.0.2", 1), "create", "-f", "-")
		if err == nil || !strings.Contains(output, "terminating") {
			t.Errorf("a host was added although the CRD is being deleted: %v: %s", err, output)
		}
		free()
		do("", "wait", "--for=delete", "crd/"+instancesCRD, "--timeout=60s")
		do("", apply...)
		do("", "wait", "--for=condition=Established", "crd/"+instancesCRD, "--timeout=60s")
		do(joinedHost, "create", "-f", "-")
		expectInstalled(t, lab)
		free()
	})
	t.Run("no webhook remains that would block requests without the operator", func(t *testing.T) {
		for _, kind := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
			if output, err := try("", "get", kind, "-o", "name"); err != nil || strings.TrimSpace(output) != "" {
				t.Errorf("%s: %v: %s", kind, err, output)
			}
		}
	})
}

// expectInstalled checks the objects of the removed namespace and their bindings.
func expectInstalled(t *testing.T, lab *cluster.Cluster) {
	t.Helper()
	admin, ctx := connect(t, lab.Admin()), t.Context()
	if _, err := admin.AppsV1().Deployments(contract.OperatorNamespace).Get(ctx, contract.OperatorServiceAccount,
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := admin.CoreV1().ServiceAccounts(contract.OperatorNamespace).Get(ctx, contract.OperatorServiceAccount,
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	roles, err := admin.RbacV1().RoleBindings(contract.OperatorNamespace).List(ctx, metav1.ListOptions{})
	if err != nil || len(roles.Items) == 0 {
		t.Errorf("the operator has no rights in its namespace: %v", err)
	}
	policies, err := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil || len(policies.Items) == 0 {
		t.Errorf("the policies are missing: %v", err)
	}
}
