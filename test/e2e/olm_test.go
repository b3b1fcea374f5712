package e2e_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// bundle creates the bundle of a version.
func bundle(t *testing.T, version, replaces string) string {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	out, programs := t.TempDir(), filepath.Join(t.TempDir(), "payload")
	if err = scene.WritePayload(programs); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "go", "run", "-C", filepath.Join(root, "tools", "olm"), ".", "--root", root,
		"--payload", programs, "--out", out, "--version", version, "--replaces", replaces)
	if output, err := c.CombinedOutput(); err != nil {
		t.Fatalf("creating the bundle: %v: %s", err, output)
	}
	return filepath.Join(out, "bundle")
}

func TestA66_HostsJoinAndLeaveUnderTheRightsThatOLMLeaves(t *testing.T) {
	t.Parallel()
	o := options(2)
	o.Bundle = bundle(t, "0.0.9", "")
	next := bundle(t, "0.1.0", "0.0.9")
	lesser := filepath.Join(t.TempDir(), "payload")
	if err := scene.WritePayload(lesser, "csi-proxy.exe"); err != nil {
		t.Fatal(err)
	}
	s := own(t, o)
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	s.guarded(t)

	t.Run("the list of acceptance", func(t *testing.T) { s.lists(t, "A36", "A73") })
	t.Run("day 2", func(t *testing.T) {
		old := s.revisions(t, hosts)
		spec := *o.Settings
		spec.Logging.Debug = true
		if err := s.Configure(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		s.moved(t, hosts, old)
	})
	t.Run("an upgrade from the bundle before", func(t *testing.T) {
		old := s.revisions(t, hosts)
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "windows-node-writers"}}
		if err := s.Client.Delete(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		if err := s.Operator.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := s.InstallBundle(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		s.Operator.SetPayload(lesser)
		if err := s.Operator.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.moved(t, hosts, old)
		s.guarded(t)
	})
	s.drop(t, hosts...)
	s.gone(t, hosts...)
	for _, h := range hosts {
		if left := scene.Left(h); len(left) > 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	}
	s.nothingRefused(t, contract.OperatorNamespace)
}

// guarded checks that all admission policies of an ordinary installation exist, and that the operator has no Role in
// another namespace.
func (s *stage) guarded(t *testing.T) {
	t.Helper()
	mine := map[string]bool{}
	policies := &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	if err := s.Client.List(t.Context(), policies); err != nil {
		t.Fatal(err)
	}
	for _, p := range policies.Items {
		mine[p.Spec.PolicyName] = true
	}
	wanted := &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	if err := theShared.stage.Client.List(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
	for _, p := range wanted.Items {
		err := s.Client.Get(t.Context(), client.ObjectKey{Name: p.Spec.PolicyName},
			&admissionregistrationv1.ValidatingAdmissionPolicy{})
		if !mine[p.Spec.PolicyName] || err != nil {
			t.Errorf("the policy %s is not in force: %v", p.Spec.PolicyName, err)
		}
	}
	for _, name := range []string{"windows-workload-pod", "windows-workload-class"} { // A73
		for _, object := range []client.Object{&admissionregistrationv1.MutatingAdmissionPolicy{},
			&admissionregistrationv1.MutatingAdmissionPolicyBinding{}} {
			if err := s.Client.Get(t.Context(), client.ObjectKey{Name: name}, object); err != nil {
				t.Errorf("the policy %s: %v", name, err)
			}
		}
	}
	roles := &rbacv1.RoleList{}
	if err := s.Client.List(t.Context(), roles); err != nil {
		t.Fatal(err)
	}
	for _, r := range roles.Items {
		if r.Namespace != contract.OperatorNamespace && strings.HasPrefix(r.Name, "windows-") {
			t.Errorf("OLM does not create the Role %s/%s", r.Namespace, r.Name)
		}
	}
}

// revisions returns the current revisions of hosts, by name.
func (s *stage) revisions(t *testing.T, hosts []*fleet.Host) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, h := range hosts {
		all[h.Name] = s.instance(t, h).Status.Revision
	}
	return all
}

// moved waits until every host has a new revision.
func (s *stage) moved(t *testing.T, hosts []*fleet.Host, from map[string]string) {
	t.Helper()
	for _, h := range hosts {
		s.await(t, h.Name+" to get to another revision", func(ctx context.Context) (bool, string, error) {
			i, err := s.Instance(ctx, h)
			if err != nil {
				return false, "", err
			}
			return i.Status.Revision != from[h.Name], fmt.Sprintf("%s: %s", i.Status.Phase, i.Status.Revision), nil
		})
	}
	s.ready(t, hosts...)
}
