package scene

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// holdPayloadServer reserves the address where the operator serves the payload. Hosts that join by themselves connect
// through the API server's service proxy, which doesn't forward to loopback addresses. So the address must be this
// computer's address in its network.
func (s *Scene) holdPayloadServer(ctx context.Context) (address string, err error) {
	address, err = s.holdPort(ctx)
	if err != nil || !s.options.ByItself {
		return address, err
	}
	own, err := fleet.OwnAddress()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("reading the payload server's address: %w", err)
	}
	return net.JoinHostPort(own.String(), port), nil
}

// Offer creates a Service in the operator's namespace for a server on this computer, so that the API server's service
// proxy can reach the server. The proxy forwards requests only to addresses of pods, so Offer also creates a Pod with
// the address of the server.
func (s *Scene) Offer(ctx context.Context, name, server string) error {
	at, err := netip.ParseAddrPort(server)
	if err != nil {
		return fmt.Errorf("reading the address of %s: %w", name, err)
	}
	address := at.Addr().String()
	meta := metav1.ObjectMeta{Namespace: s.options.Namespace, Name: name}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{Name: "operator", Image: "operator", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}}
	reference := &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	for _, object := range []client.Object{pod,
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Name: "payload", Port: contract.PayloadServerPort}}}},
		&corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{ //nolint:staticcheck // for the proxy
			Addresses: []corev1.EndpointAddress{{IP: address, TargetRef: reference}},
			Ports:     []corev1.EndpointPort{{Name: "payload", Port: int32(at.Port())}}}}}} {
		if err = client.IgnoreAlreadyExists(s.Client.Create(ctx, object)); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, meta.Name, err)
		}
	}
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, address
	pod.Status.PodIPs = []corev1.PodIP{{IP: address}}
	if err = s.Client.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("giving the pod of %s an address: %w", name, err)
	}
	return nil
}

// withdrawPayload deletes the endpoints that Offer created, because the initial state of a control plane has no
// endpoints.
func (s *Scene) withdrawPayload() error {
	endpoints := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{ //nolint:staticcheck // see Offer
		Namespace: s.options.Namespace, Name: contract.PayloadService}}
	return client.IgnoreNotFound(s.Client.Delete(context.Background(), endpoints))
}

// commandTimeout is how long Invite waits for the operator to publish a command.
const commandTimeout = time.Minute

// Join invites simulated hosts and runs on each host the command that makes it join by itself. Join returns when the
// daemons are running. If a command fails, the error contains the text that an administrator would see.
func (s *Scene) Join(ctx context.Context, hosts ...*fleet.Host) error {
	var group errgroup.Group
	for _, host := range hosts {
		group.Go(func() error {
			_, command, err := s.Invite(ctx, NameOf(host), host.Address().Addr().String())
			if err != nil {
				return err
			}
			s.say("running the command of " + NameOf(host) + " on the host")
			if output, err := fleet.RunJoinCommand(ctx, host.Machine, command); err != nil {
				return fmt.Errorf("running the command on %s: %w\n%s", host.Name, err, output)
			}
			return nil
		})
	}
	return group.Wait()
}

// Remove removes a host from windows-instances. If the host joined by itself, Remove deletes its WindowsInstance
// instead.
func (s *Scene) Remove(ctx context.Context, leaver *fleet.Host) error {
	if leaver.Server == nil {
		return s.Client.Delete(ctx, &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.options.Namespace, Name: NameOf(leaver)}})
	}
	stay := slices.DeleteFunc(slices.Clone(s.Fleet.Hosts), func(h *fleet.Host) bool { return h == leaver })
	return s.List(ctx, stay...)
}

// Invite creates the WindowsInstance of a host that joins by itself. It returns the instance and the command to run.
// addresses are the host's addresses. A host of the lab needs them: kubelet gets no serving certificate for a loopback
// address that only the host reports.
func (s *Scene) Invite(ctx context.Context, name string, addresses ...string) (instance *v1alpha1.WindowsInstance,
	command string, err error) {
	instance = &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: s.options.Namespace, Name: name},
		Spec: v1alpha1.WindowsInstanceSpec{Address: name, Addresses: addresses, ByItself: &v1alpha1.ByItself{}}}
	if err = s.Client.Create(ctx, instance); err != nil {
		return nil, "", fmt.Errorf("creating WindowsInstance %s: %w", name, err)
	}
	err = s.Await(ctx, commandTimeout, "the command of "+name, func(ctx context.Context) (bool, string, error) {
		secret := &corev1.Secret{}
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.options.Namespace,
			Name: contract.JoinSecretPrefix + string(instance.UID)}, secret)
		command = string(secret.Data[contract.JoinCommandField])
		return command != "", "", client.IgnoreNotFound(err)
	})
	failed := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
	if err != nil {
		err = fmt.Errorf("%w; the WindowsInstance reports: %s", err, instance.Status.Message())
	}
	return instance, command, errors.Join(err, failed)
}
