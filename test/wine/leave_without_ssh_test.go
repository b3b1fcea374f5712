//go:build linux

package wine_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/wine"
)

// A host is removed, joins by its own command, is removed again, and is then listed again. The operator must not use
// SSH until the host is listed.
func TestA85_TheWindowsProgramOfTheDaemonAttendsItsHost(t *testing.T) {
	s := shared
	h := s.host(leaver)
	s.leave(t, h)
	defer s.comeBack(t, h)
	s.offerPayload(t)
	connections := h.Server.Counters().Connections
	instance, command, err := s.Invite(t.Context(), h.Name)
	if err != nil {
		t.Fatal(err)
	}
	shell := fleet.PowerShell{Files: machine(h).Files(), Home: wine.Home,
		Run: func(ctx context.Context, program string, arguments []string, in io.Reader, out io.Writer) (int, error) {
			return machine(h).Run(ctx, wine.Command{Program: program, Arguments: arguments, Stdin: in, Stdout: out,
				Stderr: out})
		}}
	output, err := shell.Join(t.Context(), command)
	t.Log(output)
	if err != nil {
		t.Fatal(err)
	}
	if err = s.WaitInstances(t.Context(), soon, instance.Name); err != nil {
		t.Fatal(err)
	}
	if again := h.Server.Counters().Connections - connections; again != 0 {
		t.Errorf("the operator made %d SSH connections, want none", again)
	}
	host := windows(t, h)
	for _, name := range []string{contract.ServiceAttend, contract.ServiceDaemon, contract.ServiceContainerd,
		contract.ServiceKubelet} {
		if service, err := host.Services.Get(t.Context(), name); err != nil || service.State != winos.ServiceRunning {
			t.Errorf("service %s is %v, %v", name, service.State, err)
		}
	}
	if err = s.Client.Delete(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the instance, the node and everything on the host to be gone",
		func(ctx context.Context) (bool, string, error) {
			err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
			if !apierrors.IsNotFound(err) {
				return false, instance.Status.Message(), err
			}
			if err = s.Client.Get(ctx, client.ObjectKey{Name: h.Name}, &corev1.Node{}); !apierrors.IsNotFound(err) {
				return false, "its Node is there", err
			}
			left := scene.Left(h)
			return len(left) == 0, fmt.Sprint(left), nil
		})
}

// offerPayload lets the API server's service proxy reach the payload server, which listens on the loopback address.
func (s *stage) offerPayload(t *testing.T) {
	t.Helper()
	own, err := fleet.OwnAddress()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(own.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			go forward(from, s.Operator.PayloadServer)
		}
	}()
	if err = s.Offer(t.Context(), contract.PayloadService, listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
}

func forward(from net.Conn, address string) {
	defer from.Close()
	to, err := new(net.Dialer).Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}
