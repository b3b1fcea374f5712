package sshhost

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/host"
)

// middle is an attacker's machine that answers the first contact in place of a host, when no host key is known. It
// accepts every key and password, and opens all kinds of channels that an SSH client may accept.
type middle struct {
	listener net.Listener
	key      ssh.Signer
	mu       sync.Mutex
	// passwords are the received passwords, served are the channels that the client accepted, keys are the public
	// keys that the client sent.
	passwords, served []string
	keys              [][]byte
	// tried is closed after the first client was asked for every kind of channel.
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
	// This runs while the client is connected. Otherwise the library may wait for a channel for ever.
	for _, kind := range []string{"auth-agent@openssh.com", "forwarded-tcpip", "direct-tcpip", "x11", "session"} {
		if channel, _, err := conn.OpenChannel(kind, nil); err == nil {
			m.note(&m.served, kind)
			_ = channel.Close()
		}
	}
	m.once.Do(func() { close(m.tried) })
	_ = conn.Wait()
}

// At the first contact, such a machine learns the public key and a signature. The signature is valid only for this
// connection (RFC 4252, 7). The machine must get no password, no agent, and no access to the operator's network.
func TestAMachineInTheMiddleGetsNoCredentialAndNoChannel(t *testing.T) {
	t.Parallel()
	r, m := newRig(t), newMiddle(t)
	at := m.listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // it listens on TCP
	conn, err := New(Options{}).Dial(t.Context(), host.Target{Address: "127.0.0.1", Port: at.Port,
		User: r.machine.User(), PrivateKey: r.key})
	if err != nil {
		t.Fatal(err) // the machine accepts the login, as a host would
	}
	<-m.tried
	// The machine's key is pinned. It differs from the host's key.
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
		t.Error("the client did not send its public key, so the test shows nothing")
	}
	// If the host's key is known, the machine does not even learn the public key.
	known := newMiddle(t)
	at = known.listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // it listens on TCP
	_, err = New(Options{}).Dial(t.Context(), host.Target{Address: "127.0.0.1", Port: at.Port,
		User: r.machine.User(), PrivateKey: r.key, HostKey: otherKey(t)})
	known.mu.Lock()
	defer known.mu.Unlock()
	if err == nil || len(known.keys) > 0 {
		t.Errorf("%v; it received %d keys", err, len(known.keys))
	}
}
