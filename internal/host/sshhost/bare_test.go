package sshhost

import (
	"context"
	"crypto/ed25519"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

// bareServer is an SSH server that accepts every login, and handles SFTP in ways that a simulated Windows host never
// would. It stops when the connection ends.
func bareServer(tb testing.TB, subsystem func(channel ssh.Channel, request *ssh.Request)) func(context.Context, string,
	string) (net.Conn, error) {
	tb.Helper()
	config := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions,
		error) {
		return nil, nil
	}}
	config.AddHostKey(newHostKey(tb))
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	tb.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		far, err := l.Accept()
		if err != nil {
			return
		}
		conn, channels, requests, err := ssh.NewServerConn(far, config)
		if err != nil {
			return
		}
		go ssh.DiscardRequests(requests)
		for offered := range channels {
			channel, requests, err := offered.Accept()
			if err != nil {
				continue
			}
			for r := range requests {
				subsystem(channel, r)
			}
		}
		_ = conn.Wait()
	}()
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	}
}

func TestHostWithoutUsableSFTPIsNamed(t *testing.T) {
	t.Parallel()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := func(channel ssh.Channel, request *ssh.Request) { _ = request.Reply(true, nil); _ = channel }
	cases := map[string]struct {
		subsystem func(channel ssh.Channel, request *ssh.Request)
		want      contract.Reason
		timeout   time.Duration
	}{
		"it is switched off": {func(_ ssh.Channel, r *ssh.Request) { _ = r.Reply(false, nil) },
			contract.ReasonNoSFTP, time.Minute},
		"its program does not start": {func(c ssh.Channel, r *ssh.Request) { begin(c, r); _ = c.Close() },
			contract.ReasonNoSFTP, time.Minute},
		"a greeting stands in its way": {func(c ssh.Channel, r *ssh.Request) {
			begin(c, r)
			_, _ = io.WriteString(c, strings.Repeat("Welcome! ", 100))
		}, contract.ReasonNoSFTP, time.Minute},
		"it never sends a byte": {begin, contract.ReasonConnectionLost, 500 * time.Millisecond},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dialer := New(Options{Network: bareServer(t, c.subsystem), SetupTimeout: c.timeout})
			conn, err := dialer.Dial(t.Context(),
				host.Target{Address: "192.0.2.1", User: "a", PrivateKey: pemOf(t, key)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Send(t.Context(), "x", strings.NewReader("x"))
			wantReason(t, err, c.want)
			if err = conn.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
