package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// byItself starts a scene whose hosts join by their own command, without SSH.
func byItself(t *testing.T, hosts int) *stage {
	t.Helper()
	return byItselfIn(t, hosts, own)
}

func byItselfIn(t *testing.T, hosts int, start func(*testing.T, scene.Options) *stage) *stage {
	t.Helper()
	o := options(hosts)
	o.ByItself, o.Hosts.Edit = true, nil // without Edit, which only sets up the shell for SSH logins
	return start(t, o)
}

// invite creates the WindowsInstance of a host and returns the host's join command.
func (s *stage) invite(t *testing.T, name string) (instance *v1alpha1.WindowsInstance, command string) {
	t.Helper()
	instance, command, err := s.Invite(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return instance, command
}

// invitation creates a WindowsInstance for a host that never joins, and deletes it.
func (s *stage) invitation(t *testing.T) {
	instance, _ := s.invite(t, "win-never")
	must(t, s.Client.Delete(t.Context(), instance))
	s.await(t, "the instance to be deleted", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return err != nil, instance.Status.Message(), client.IgnoreNotFound(err)
	})
}

// joined waits until a host that joins by its own command is a Ready node.
func (s *stage) joined(t *testing.T, instance *v1alpha1.WindowsInstance) {
	t.Helper()
	s.await(t, "the node of "+instance.Name, func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return instance.Status.Phase == v1alpha1.PhaseReady, fmt.Sprint(instance.Status.Phase, instance.Status.Reason(),
			instance.Status.Message()), err
	})
}

func TestA85_AHostWithoutSSHBecomesANodeWithOneCommand(t *testing.T) {
	t.Parallel()
	s := byItself(t, 3)
	hosts := s.hosts(t, 3)
	instance, command := s.invite(t, "win-a")
	s.await(t, "the reason for waiting", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return instance.Status.Reason() == string(contract.ReasonHostAwaited), instance.Status.Reason(), err
	})
	if output, err := fleet.RunJoinCommand(t.Context(), hosts[0].Machine, command); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	s.joined(t, instance)
	if instance.Status.NodeName != hosts[0].Name {
		t.Errorf("the WindowsInstance has the node %s, want %s", instance.Status.NodeName, hosts[0].Name)
	}
	// After the join, the token must be worthless, both for this host's name and for other names.
	for _, thief := range hosts[1:] {
		if output, err := fleet.RunJoinCommand(t.Context(), thief.Machine, command); err == nil {
			t.Errorf("the join command of %s also worked on %s:\n%s", hosts[0].Name, thief.Name, output)
		}
	}
	other, _ := s.invite(t, "win-b")
	replay := strings.ReplaceAll(command, string(instance.UID), string(other.UID))
	if output, err := fleet.RunJoinCommand(t.Context(), hosts[1].Machine, replay); err == nil {
		t.Errorf("the token of %s was accepted for %s:\n%s", instance.Name, other.Name, output)
	}
}

// leaves removes a host that joined by its own command, and checks that nothing is left on the host and in the cluster.
func (s *stage) leaves(t *testing.T, host *fleet.Host, instance *v1alpha1.WindowsInstance) {
	t.Helper()
	if len(scene.Left(host)) == 0 {
		t.Fatal("joining did not change the host, so this test can't fail")
	}
	if err := s.Client.Delete(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the instance and everything on the host to be gone", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		left := scene.Left(host)
		return err != nil && len(left) == 0, strings.Join(left, "\n"), client.IgnoreNotFound(err)
	})
	for _, name := range []string{contract.CallSecretPrefix, contract.JoinSecretPrefix} {
		secret := &corev1.Secret{}
		err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace,
			Name: name + string(instance.UID)}, secret)
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("secret %s%s was not deleted: %v", name, instance.UID, err)
		}
	}
}

func TestA86_AHostWithoutSSHIsRemovedAsCleanAsAnyOther(t *testing.T) {
	t.Parallel()
	s := byItself(t, 1)
	host := s.hosts(t, 1)[0]
	instance, command := s.invite(t, "win-a")
	if output, err := fleet.RunJoinCommand(t.Context(), host.Machine, command); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	s.joined(t, instance)
	s.leaves(t, host, instance)
}
