package sshd_test

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func TestLogin(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		user    string
		edit    func(tb testing.TB, h *host)
		refused bool
	}{
		"the administrator gets in":                  {user: "Administrator"},
		"letter case of the user does not matter":    {user: "aDMINISTRATOR"},
		"the host's name may stand before the user":  {user: `win-a\administrator`},
		"a dot stands for the host's name":           {user: `.\Administrator`},
		"another host's user does not exist":         {user: `OTHER\Administrator`, refused: true},
		"an unknown user is refused":                 {user: "root", refused: true},
		"a user name with a newline is another user": {user: "Administrator\n", refused: true},
		"the host can refuse all keys": {user: "Administrator", refused: true,
			edit: refuseKeys},
		"a key that is no longer authorised is refused": {user: "Administrator", refused: true,
			edit: authorizeOther},
		"a key that was authorised again gets in":               {user: "Administrator", edit: authorizeAgain},
		"lines of the keys' file that are no keys are harmless": {user: "Administrator", edit: spoilKeys},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHost(t, nil)
			if test.edit != nil {
				test.edit(t, h)
			}
			_, _, err := h.dialAs(t, test.user)
			if (err != nil) != test.refused {
				t.Fatalf("the login was refused: %v, want %v: %v", err != nil, test.refused, err)
			}
			want := sshd.Counters{Connections: 1, Authenticated: 1, OpenConnections: 1}
			if test.refused {
				want = sshd.Counters{Connections: 1}
			}
			eventually(t, "counters", func() bool {
				got := h.Counters()
				got.BytesIn, got.BytesOut = 0, 0
				return got == want
			})
		})
	}
}

func refuseKeys(_ testing.TB, h *host) {
	h.Change(func(s *sshd.Settings) { s.Faults.RefuseKeys = true })
}

func authorizeOther(tb testing.TB, h *host) {
	tb.Helper()
	if err := sshd.Authorize(h.machine, newKey(tb).PublicKey()); err != nil {
		tb.Fatal(err)
	}
}

func authorizeAgain(tb testing.TB, h *host) {
	tb.Helper()
	authorizeOther(tb, h)
	if err := sshd.Authorize(h.machine, newKey(tb).PublicKey(), h.key.PublicKey()); err != nil {
		tb.Fatal(err)
	}
}

func spoilKeys(tb testing.TB, h *host) {
	tb.Helper()
	lines := "# administrators\r\n\r\nssh-ed25519 rubbish\r\n" + string(ssh.MarshalAuthorizedKey(h.key.PublicKey()))
	w, err := h.machine.Create(sshd.AuthorizedKeysPath, 0)
	if err == nil {
		_, err = w.Write([]byte(lines))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func TestAReinstalledHostShowsAnotherKey(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	_, first, err := h.dialAs(t, "Administrator")
	if err != nil {
		t.Fatal(err)
	}
	if first != h.HostKey() {
		t.Errorf("the host showed the key %s, want %s", first, h.HostKey())
	}
	key, err := sshd.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	h.Change(func(s *sshd.Settings) { s.HostKey = key })
	_, second, err := h.dialAs(t, "Administrator")
	if err != nil {
		t.Fatal(err)
	}
	if second == first || second != h.HostKey() {
		t.Errorf("the host showed the key %s after %s, want %s", second, first, h.HostKey())
	}
}

func TestAClosedPortRefusesConnectionsAndOpensAgain(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(_ *diskMachine, s *sshd.Settings) { s.Faults.Closed = true })
	if _, _, err := h.dialAs(t, "Administrator"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v, want a refused connection", err)
	}
	h.Change(func(s *sshd.Settings) { s.Faults.Closed = false })
	open := h.dial(t)
	h.Change(func(s *sshd.Settings) { s.Faults.Closed = true })
	if _, _, err := h.dialAs(t, "Administrator"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v, want a refused connection", err)
	}
	if _, _, err := open.SendRequest("keepalive@openssh.com", true, nil); err != nil {
		t.Errorf("the open connection was closed: %v", err)
	}
}

func TestAHungHostAcceptsAndSaysNothing(t *testing.T) {
	t.Parallel()
	h := startHost(t, func(_ *diskMachine, s *sshd.Settings) { s.Faults.Hung = true })
	conn, err := net.Dial("tcp", h.Address().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("SSH-2.0-test\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	n, err := conn.Read(make([]byte, 1))
	if timeout := net.Error(nil); n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("read %d bytes, %v; want silence", n, err)
	}
}

func TestARebootCutsConnectionsAndRefusesNewOnesUntilTheMachineIsUp(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	client := h.dial(t)
	for range 2 {
		h.machine.powerOff()
		_ = client.Wait()
		eventually(t, "a closed port", func() bool {
			conn, err := net.Dial("tcp", h.Address().String())
			if err == nil {
				_ = conn.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		})
		// Settings can also be changed while the machine is off.
		h.Change(func(s *sshd.Settings) { s.Latency = time.Millisecond })
		if _, err := net.Dial("tcp", h.Address().String()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("got %v while the machine is off, want a refused connection", err)
		}
		h.machine.powerOn()
		eventually(t, "an open port", func() bool {
			conn, err := net.Dial("tcp", h.Address().String())
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		})
		client = h.dial(t)
	}
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	_, err := sshd.Start(t.Context(), sshd.Options{Machine: newMachine(t), Listen: h.Address()})
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the error is %v", err)
	}
}

func TestEachHostHasItsOwnLoopbackAddress(t *testing.T) {
	t.Parallel()
	s, err := sshd.Start(t.Context(), sshd.Options{Machine: newMachine(t),
		Listen: netip.MustParseAddrPort("127.9.8.7:0")})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if got := s.Address().Addr().String(); got != "127.9.8.7" {
		t.Errorf("the server listens on %s", got)
	}
}
