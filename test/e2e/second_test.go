package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/scene"
)

// elsewhere is the namespace of a second operator.
const elsewhere = "elsewhere"

// second prepares a second operator in another namespace, with all rights. The returned function runs it until ctx ends
// or the operator exits by itself, and returns its output.
func (s *stage) second(t *testing.T) func(ctx context.Context) (string, error) {
	t.Helper()
	account := metav1.ObjectMeta{Namespace: elsewhere, Name: contract.OperatorServiceAccount}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: elsewhere}},
		&corev1.ServiceAccount{ObjectMeta: account},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: elsewhere},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace,
				Name: account.Name}}},
	} {
		if err := s.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	_, credential, err := s.Cluster.ServiceAccountConfig(t.Context(), account.Namespace, account.Name, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig, payload := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "payload")
	if err = os.WriteFile(kubeconfig, credential, 0o600); err != nil {
		t.Fatal(err)
	}
	if err = scene.WritePayload(payload); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) (string, error) {
		c := exec.CommandContext(ctx, os.Getenv("WMCO_OPERATOR"), "--kubeconfig", kubeconfig, "--payload-dir", payload,
			"--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--payload-bind-address", "0")
		c.Env = []string{"PATH=" + os.Getenv("PATH"), "WATCH_NAMESPACE=" + elsewhere, "POD_NAME=second"}
		output := &bytes.Buffer{}
		c.Stdout, c.Stderr = output, output
		err := c.Run()
		return output.String(), err
	}
}

// owner returns the namespace of the operator that owns the nodes.
func (s *stage) owner(t *testing.T) string {
	t.Helper()
	config := &v1alpha1.WindowsMachineConfig{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
		t.Fatal(err)
	}
	return config.Status.Operator.Namespace
}

func TestA63_ASecondOperatorInAnotherNamespaceDoesNothingAndSaysWhy(t *testing.T) {
	t.Parallel()
	s := own(t, options(1))
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	run := s.second(t)
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: contract.InstancesConfigMap},
		Data: map[string]string{"10.9.9.9": "username=Administrator"}}
	if err := s.Client.Create(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	output, err := run(ctx)
	if err == nil || ctx.Err() != nil {
		t.Fatalf("the second operator did not exit by itself: %v\n%s", err, output)
	}
	if !strings.Contains(output, contract.OperatorNamespace) || !strings.Contains(output, "W934") ||
		!strings.Contains(output, contract.ReasonAnotherOperator.Fix()) {
		t.Errorf("the second operator does not say why it exits: %s", output)
	}
	s.reportsIt(t)
	s.didNothing(t)
	s.ready(t, hosts...)
	if owner := s.owner(t); owner != contract.OperatorNamespace {
		t.Errorf("the nodes belong to %s", owner)
	}

	t.Run("it takes over when the first one is removed", func(t *testing.T) {
		s.drop(t, hosts...)
		s.gone(t, hosts...)
		counted := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				config := &v1alpha1.WindowsMachineConfig{}
				err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
				return config.Status.Instances.Total == 0, err
			})
		if counted != nil {
			t.Fatal(counted)
		}
		if err := s.Operator.Stop(); err != nil {
			t.Fatal(err)
		}
		// Simulate that the first operator ended an hour ago.
		s.owned(t, contract.OperatorNamespace, time.Now().Add(-time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan string, 1)
		go func() {
			output, _ := run(ctx)
			ended <- output
		}()
		took := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) { return s.owner(t) == elsewhere, nil })
		owner := s.owner(t)
		cancel()
		if output := <-ended; took != nil || owner != elsewhere {
			t.Fatalf("took over: %v: the nodes belong to %s: %s", took, owner, output)
		}
	})
	t.Run("then the first one does nothing", func(t *testing.T) {
		err := s.Operator.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "belong to the operator in namespace elsewhere") {
			t.Errorf("the first operator continues although it no longer owns the nodes: %v", err)
		}
	})
}

// reportsIt checks that there is an event about the second operator.
func (s *stage) reportsIt(t *testing.T) {
	t.Helper()
	events := &eventsv1.EventList{}
	if err := s.Client.List(t.Context(), events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Reason == string(contract.ReasonAnotherOperator) && e.Regarding.Name == contract.MachineConfigObject &&
			strings.Contains(e.Note, elsewhere) {
			return
		}
	}
	t.Error("there is no event about the second operator")
}

// didNothing checks that the second operator created no object in its namespace.
func (s *stage) didNothing(t *testing.T) {
	t.Helper()
	instances := &v1alpha1.WindowsInstanceList{}
	if err := s.Client.List(t.Context(), instances, client.InNamespace(elsewhere)); err != nil {
		t.Fatal(err)
	}
	if len(instances.Items) > 0 {
		t.Errorf("the second operator created %d instances", len(instances.Items))
	}
	err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: elsewhere, Name: contract.LeaderLease},
		&coordinationv1.Lease{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the second operator has a lease: %v", err)
	}
}

// owned writes which operator owns the nodes, and since when.
func (s *stage) owned(t *testing.T, namespace string, since time.Time) {
	t.Helper()
	config := &v1alpha1.WindowsMachineConfig{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
		t.Fatal(err)
	}
	before := config.DeepCopy()
	config.Status.Operator = v1alpha1.OperatorStatus{Namespace: namespace, RenewTime: &metav1.Time{Time: since}}
	if err := s.Client.Status().Patch(t.Context(), config, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}
