package sshhost

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/host"
)

// middle is a machine that answers in a host's place at the first contact, when no host key is known. It
// takes any key, would take any password, and opens whatever an SSH client may serve.
type middle struct {
	listener net.Listener
	key      ssh.Signer
	mu       sync.Mutex
	// passwords are what came as one, served are channels that the client accepted, keys those shown.
	passwords, served []string
	keys              [][]byte
	// tried is closed when the first client was asked for every kind of channel.
	tried chan struct{}
	once  sync.Once
	ended sync.WaitGroup
}

func newMiddle(tb testing.TB) *middle {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	m := &middle{listener: listener, key: newHostKey(tb), tried: make(chan struct{})}
	m.ended.Go(m.accept)
	tb.Cleanup(func() {
		_ = listener.Close()
		m.ended.Wait()
	})
	return m
}

func (m *middle) accept() {
	for {
		tcp, err := m.listener.Accept()
		if err != nil {
			return
		}
		m.ended.Go(func() { m.serve(tcp) })
	}
}

func (m *middle) note(list *[]string, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*list = append(*list, text)
}

func (m *middle) serve(tcp net.Conn) {
	defer tcp.Close()
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.keys = append(m.keys, key.Marshal())
			return nil, nil
		},
		PasswordCallback: func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			m.note(&m.passwords, string(password))
			return nil, nil
		},
		KeyboardInteractiveCallback: func(_ ssh.ConnMetadata,
			ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"Password:"}, []bool{false})
			if err == nil {
				m.note(&m.passwords, fmt.Sprint(answers))
			}
			return nil, err
		},
	}
	config.AddHostKey(m.key)
	conn, channels, requests, err := ssh.NewServerConn(tcp, config)
	if err != nil {
		return
	}
	defer conn.Close()
	go ssh.DiscardRequests(requests)
	go func() {
		for c := range channels {
			_ = c.Reject(ssh.Prohibited, "nothing here")
		}
	}()
	// While the client is there: the library may wait for ever for a channel of a connection that ends.
	for _, kind := range []string{"auth-agent@openssh.com", "forwarded-tcpip", "direct-tcpip", "x11", "session"} {
		if channel, _, err := conn.OpenChannel(kind, nil); err == nil {
			m.note(&m.served, kind)
			_ = channel.Close()
		}
	}
	m.once.Do(func() { close(m.tried) })
	_ = conn.Wait()
}

// Who answers the first contact learns the public key and a signature over that very connection, which
// opens no other (RFC 4252, 7): no password, no agent, no way into the operator's network.
func TestAMachineInTheMiddleGetsNoCredentialAndNoChannel(t *testing.T) {
	t.Parallel()
	r, m := newRig(t), newMiddle(t)
	at := m.listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // it listens on TCP
	conn, err := New(Options{}).Dial(t.Context(), host.Target{Address: "127.0.0.1", Port: at.Port,
		User: r.machine.User(), PrivateKey: r.key})
	if err != nil {
		t.Fatal(err) // it is let in, as by a host
	}
	<-m.tried
	// what it shows is pinned, and differs from the host's
	if conn.HostKey() != authorizedLine(m.key.PublicKey()) {
		t.Errorf("the key %s would be pinned", conn.HostKey())
	}
	_ = conn.Close()
	_ = m.listener.Close()
	m.ended.Wait()
	if len(m.passwords) > 0 || len(m.served) > 0 {
		t.Errorf("passwords %q, channels %q", m.passwords, m.served)
	}
	if len(m.keys) == 0 {
		t.Error("it was not even shown the public key, so nothing was tried")
	}
	// with the host's key known, not even that
	known := newMiddle(t)
	at = known.listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // it listens on TCP
	_, err = New(Options{}).Dial(t.Context(), host.Target{Address: "127.0.0.1", Port: at.Port,
		User: r.machine.User(), PrivateKey: r.key, HostKey: otherKey(t)})
	known.mu.Lock()
	defer known.mu.Unlock()
	if err == nil || len(known.keys) > 0 {
		t.Errorf("%v; it was shown %d keys", err, len(known.keys))
	}
}
