package e2e_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/port"
	"github.com/windows-nodes/wmco/lab/scene"
)

// byItself is a scene whose payload server the API server reaches, and without a private key.
func byItself(t *testing.T, hosts int) *stage {
	t.Helper()
	return byItselfIn(t, hosts, own)
}

func byItselfIn(t *testing.T, hosts int, start func(*testing.T, scene.Options) *stage) *stage {
	t.Helper()
	lease, err := fleet.TakeOwn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release() })
	held, err := port.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	_, number, err := net.SplitHostPort(held.Address())
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(lease.Address.String(), number)
	o := options(hosts)
	o.NoKey, o.Hosts.Edit = true, nil // the shell of SSH logins
	o.Hosts.Finish = func(h *fleet.HostOptions) { h.NoSSH = true }
	o.Arguments = []string{"--payload-bind-address", address, "--payload-advertise", address}
	s := start(t, o)
	s.offerPayload(t, lease.Address.String(), number)
	return s
}

// offerPayload creates the Service of the payload server and its endpoints. The API server forwards requests only to
// the address of a pod, so the operator's process gets one.
func (s *stage) offerPayload(t *testing.T, address, number string) {
	t.Helper()
	target, err := strconv.ParseInt(number, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: contract.PayloadService}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Name: "payload", Port: contract.PayloadServerPort}}}}
	if err = client.IgnoreAlreadyExists(s.Client.Create(t.Context(), service)); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "operator", Image: "operator", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}}
	if err = client.IgnoreAlreadyExists(s.Client.Create(t.Context(), pod)); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, address
	pod.Status.PodIPs = []corev1.PodIP{{IP: address}}
	if err = s.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	reference := &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	endpoints := &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{ //nolint:staticcheck // the API server's proxy reads them
		Addresses: []corev1.EndpointAddress{{IP: address, TargetRef: reference}},
		Ports:     []corev1.EndpointPort{{Name: "payload", Port: int32(target)}}}}}
	if err = client.IgnoreAlreadyExists(s.Client.Create(t.Context(), endpoints)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, object := range []client.Object{service, endpoints, pod} {
			_ = s.Client.Delete(context.Background(), object)
		}
	})
}

// invite creates the WindowsInstance of a host and returns the command for it.
func (s *stage) invite(t *testing.T, name string) (instance *v1alpha1.WindowsInstance, command string) {
	t.Helper()
	instance = &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: name},
		Spec:       v1alpha1.WindowsInstanceSpec{Address: name, ByItself: &v1alpha1.ByItself{}}}
	if err := s.Client.Create(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the command of "+name, func(ctx context.Context) (bool, string, error) {
		secret := &corev1.Secret{}
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace,
			Name: contract.JoinSecretPrefix + string(instance.UID)}, secret)
		command = string(secret.Data[contract.JoinCommandField])
		_ = s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return command != "", instance.Status.Message, client.IgnoreNotFound(err)
	})
	return instance, command
}

// invitation invites a host that never comes.
func (s *stage) invitation(t *testing.T) {
	instance, _ := s.invite(t, "win-never")
	must(t, s.Client.Delete(t.Context(), instance))
	s.await(t, "the instance to be gone", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return err != nil, instance.Status.Message, client.IgnoreNotFound(err)
	})
}

// joined waits until a host that joins by itself is a Ready node.
func (s *stage) joined(t *testing.T, instance *v1alpha1.WindowsInstance) {
	t.Helper()
	s.await(t, "the node of "+instance.Name, func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return instance.Status.Phase == v1alpha1.PhaseReady, fmt.Sprint(instance.Status.Phase, instance.Status.Reason,
			instance.Status.Message), err
	})
}

func TestA85_AHostWithoutSSHBecomesANodeWithOneCommand(t *testing.T) {
	t.Parallel()
	s := byItself(t, 3)
	hosts := s.hosts(t, 3)
	instance, command := s.invite(t, "win-a")
	s.await(t, "the reason for waiting", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return instance.Status.Code == contract.ReasonHostAwaited.Code(), instance.Status.Code, err
	})
	if output, err := fleet.RunJoinCommand(t.Context(), hosts[0].Machine, command); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	s.joined(t, instance)
	if instance.Status.NodeName != hosts[0].Name {
		t.Errorf("the node is %s, want %s", instance.Status.NodeName, hosts[0].Name)
	}
	// The token is worth nothing now, for this host's name and for another's.
	for _, thief := range hosts[1:] {
		if output, err := fleet.RunJoinCommand(t.Context(), thief.Machine, command); err == nil {
			t.Errorf("the command of %s ran on %s as well:\n%s", hosts[0].Name, thief.Name, output)
		}
	}
	other, _ := s.invite(t, "win-b")
	replay := strings.ReplaceAll(command, string(instance.UID), string(other.UID))
	if output, err := fleet.RunJoinCommand(t.Context(), hosts[1].Machine, replay); err == nil {
		t.Errorf("the token of %s was accepted for %s:\n%s", instance.Name, other.Name, output)
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
	if len(scene.Left(host)) == 0 {
		t.Fatal("joining changed nothing, so this test could not fail")
	}
	if err := s.Client.Delete(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the instance and everything on the host to be gone", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		left := slices.DeleteFunc(scene.Left(host), func(line string) bool { // the next boot deletes a program in use
			return strings.HasPrefix(line, `+ file C:\WINDOWS\TEMP\WMCO-`)
		})
		return err != nil && len(left) == 0, strings.Join(left, "\n"), client.IgnoreNotFound(err)
	})
	for _, name := range []string{contract.CallSecretPrefix, contract.JoinSecretPrefix} {
		secret := &corev1.Secret{}
		err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace,
			Name: name + string(instance.UID)}, secret)
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("secret %s%s: %v", name, instance.UID, err)
		}
	}
}
