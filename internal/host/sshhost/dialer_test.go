package sshhost

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// hasty sets timeouts that are short enough for a test.
func hasty(o *Options) {
	o.ConnectTimeout, o.HandshakeTimeout, o.SetupTimeout = 300*time.Millisecond, 300*time.Millisecond,
		300*time.Millisecond
}

func newHostKey(tb testing.TB) ssh.Signer {
	tb.Helper()
	key, err := sshd.NewHostKey()
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// otherKey returns a host key that no host has.
func otherKey(tb testing.TB) string {
	tb.Helper()
	return authorizedLine(newHostKey(tb).PublicKey())
}

func TestDialSaysWhyItFailed(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		prepare func(tb testing.TB, r *rig, target *host.Target)
		want    contract.Reason
	}{
		"a closed port is unreachable": {func(_ testing.TB, r *rig, _ *host.Target) {
			r.Change(func(s *sshd.Settings) { s.Faults.Closed = true })
		}, contract.ReasonUnreachable},
		"a name that DNS does not know": {func(_ testing.TB, _ *rig,
			target *host.Target) {
			target.Address = "no-such-host.invalid"
		}, contract.ReasonAddressUnresolvable},
		"an IPv6 address, which Windows nodes don't use": {func(_ testing.TB, _ *rig,
			target *host.Target) {
			target.Address = "::1"
		}, contract.ReasonAddressUnresolvable},
		"a host that accepts and never speaks": {func(_ testing.TB, r *rig,
			_ *host.Target) {
			r.Change(func(s *sshd.Settings) { s.Faults.Hung = true })
		}, contract.ReasonNotSSH},
		"a host that refuses every key": {func(_ testing.TB, r *rig, _ *host.Target) {
			r.Change(func(s *sshd.Settings) { s.Faults.RefuseKeys = true })
		}, contract.ReasonKeyRefused},
		"a user that the host does not know": {func(_ testing.TB, _ *rig,
			target *host.Target) {
			target.User = "nobody"
		}, contract.ReasonKeyRefused},
		"another host key than expected":           {expectOther, contract.ReasonHostKeyMismatch},
		"a host key of another type than expected": {expectECDSA, contract.ReasonHostKeyMismatch},
		"an expected host key that can't be read": {func(_ testing.TB, _ *rig,
			target *host.Target) {
			target.HostKey = "ssh-ed25519 rubbish"
		}, contract.ReasonHostKeyMismatch},
		"two expected host keys are not understood": {expectTwo, contract.ReasonHostKeyMismatch},
		"an invalid private key": {func(_ testing.TB, _ *rig,
			target *host.Target) {
			target.PrivateKey = []byte("rubbish")
		}, contract.ReasonPrivateKeyInvalid},
		"a connection cut before the host key": {func(_ testing.TB, r *rig, _ *host.Target) { drop(r, 500) },
			contract.ReasonNotSSH},
		"a connection cut after the host key": {dropWhileLoggingIn, contract.ReasonConnectionLost},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			target := r.target()
			c.prepare(t, r, &target)
			o := Options{}
			if c.want == contract.ReasonNotSSH {
				hasty(&o)
			}
			conn, err := New(o).Dial(t.Context(), target)
			if err == nil {
				t.Fatal("the connection succeeded:", conn.Close())
			}
			wantReason(t, err, c.want, string(r.key), "rubbish")
			eventually(t, "the end of all connections", func() bool { return r.Counters().OpenConnections == 0 })
		})
	}
}

// dropWhileLoggingIn closes the connection shortly before the login is complete. The host does not announce its keys,
// because the test needs the login to be the last data that the host sends.
func dropWhileLoggingIn(tb testing.TB, r *rig, _ *host.Target) {
	tb.Helper()
	r.Change(func(s *sshd.Settings) { s.Faults.HostKeys = sshd.HostKeysSilent })
	if err := r.dial(tb).Close(); err != nil {
		tb.Fatal(err)
	}
	eventually(tb, "the end of the first connection", func() bool { return r.Counters().OpenConnections == 0 })
	drop(r, r.Counters().BytesIn+r.Counters().BytesOut-100)
}

func drop(r *rig, after int64) {
	r.Change(func(s *sshd.Settings) { s.Faults.Drop = &sshd.Drop{After: after} })
}

func expectOther(tb testing.TB, _ *rig, target *host.Target) {
	tb.Helper()
	target.HostKey = otherKey(tb)
}

func expectTwo(tb testing.TB, _ *rig, target *host.Target) {
	tb.Helper()
	target.HostKey = otherKey(tb) + "\n" + otherKey(tb)
}

func expectECDSA(tb testing.TB, r *rig, target *host.Target) {
	tb.Helper()
	r.Change(func(s *sshd.Settings) { s.FurtherHostKeys = []ssh.Signer{} })
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	public, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		tb.Fatal(err)
	}
	target.HostKey = authorizedLine(public)
}

// These servers don't speak SSH.
func TestDialKnowsWhatIsNotSSH(t *testing.T) {
	t.Parallel()
	cases := map[string]func(c net.Conn){
		"a web server": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad "+
				"Request\r\nConnection: close\r\n\r\n")
		},
		"a server that hangs up": func(net.Conn) {},
		"a server that never ends its line": func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		},
		"a server of noise after its name": func(c net.Conn) {
			_,
				_ = io.WriteString(c, "SSH-2.0-x\r\n"+strings.Repeat("\x00\x00\x10\x00", 5000))
		},
	}
	for name, serve := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				if c, err := l.Accept(); err == nil {
					serve(c)
					_ = c.Close()
				}
			}()
			target := newRig(t).target()
			target.Port = l.Addr().(*net.TCPAddr).Port
			_, err = New(Options{}).Dial(t.Context(), target)
			wantReason(t, err, contract.ReasonNotSSH)
			_ = l.Close()
			<-served
		})
	}
}

func TestDialReportsWhereTheHostWasReached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		target  host.Target
		network func(ctx context.Context, network, address string) (net.Conn, error)
	}{
		"by its address": {r.target(), nil},
		"by a name": {host.Target{Address: "win-a.example.com", User: "a", PrivateKey: pemOf(t, key)},
			bareServer(t, nil)},
	} {
		conn, err := New(Options{Network: test.network}).Dial(t.Context(), test.target)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := conn.Address(); got != netip.MustParseAddr("127.0.0.1") {
			t.Errorf("%s: connected to %v", name, got)
		}
		if err = conn.Close(); err != nil {
			t.Error(err)
		}
	}
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	nowhere := &conn{wire: newWire(ours, clock.RealClock{})}
	if got := nowhere.Address(); got.IsValid() {
		t.Errorf("a pipe has the address %s", got)
	}
	if err = nowhere.wire.Close(); err != nil {
		t.Error(err)
	}
}

func TestDialReportsTheHostKeyAndHoldsToIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := r.dial(t).HostKey()
	if key != r.Server.HostKey() {
		t.Fatalf("reported the key %q, the host has %q", key, r.Server.HostKey())
	}
	target := r.target()
	target.HostKey = key + " a comment\n"
	conn, err := New(Options{}).Dial(t.Context(), target)
	if err != nil {
		t.Fatalf("the key that was just reported is refused: %v", err)
	}
	if err = conn.Close(); err != nil {
		t.Error(err)
	}
	r.Change(func(s *sshd.Settings) { s.HostKey = newHostKey(t) })
	_, err = New(Options{}).Dial(t.Context(), target)
	wantReason(t, err, contract.ReasonHostKeyMismatch)
	if fingerprint := ssh.FingerprintSHA256(r.Settings().HostKey.PublicKey()); !strings.Contains(err.Error(),
		fingerprint) {
		t.Errorf("%v lacks the fingerprint of the host's key, %s", err, fingerprint)
	}
}

func TestDialUsesEveryGoodKindOfHostKeyAndUserKey(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecdsaKey, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, private := range map[string]any{"RSA": rsaKey, "ECDSA": ecdsaKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			signer, err := ssh.NewSignerFromKey(private)
			if err != nil {
				t.Fatal(err)
			}
			r.Change(func(s *sshd.Settings) { s.HostKey = signer })
			if err = sshd.Authorize(r.machine.Host().Files, signer.PublicKey()); err != nil {
				t.Fatal(err)
			}
			target := r.target()
			target.PrivateKey, target.HostKey = pemOf(t, private), authorizedLine(signer.PublicKey())
			conn, err := New(Options{}).Dial(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if err = conn.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The packets of this host are dropped. The test uses a simulated clock, so that the real timeouts are tested.
func TestDialGivesUpInTime(t *testing.T) {
	t.Parallel()
	key := newRig(t).key
	cases := map[string]struct {
		network func(ctx context.Context, network, address string) (net.Conn, error)
		timeout time.Duration
		want    contract.Reason
		took    time.Duration
	}{
		"nothing answers at all": {network: swallow, want: contract.ReasonUnreachable,
			took: 10 * time.Second},
		"the server never sends anything": {network: silence, want: contract.ReasonNotSSH,
			took: 20 * time.Second},
		"the caller's deadline is first, and nothing answers": {network: swallow, timeout: time.Second,
			want: contract.ReasonUnreachable, took: time.Second},
		"the caller's deadline is first, and the server sends nothing": {network: silence, timeout: time.Second,
			want: contract.ReasonNotSSH, took: time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.timeout)
					defer cancel()
				}
				began := time.Now()
				_, err := New(Options{Network: c.network}).Dial(ctx,
					host.Target{Address: "192.0.2.1", User: "a", PrivateKey: key})
				wantReason(t, err, c.want)
				if took := time.Since(began); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				if c.timeout > 0 && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v does not show that the caller's deadline has passed", err)
				}
				synctest.Wait()
			})
		})
	}
}

// swallow simulates a network that never answers.
func swallow(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
}

// silence returns a connection to a peer that reads everything and sends nothing.
func silence(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	return near, nil
}

func TestDialEndsWhenItsContextIsCancelled(t *testing.T) {
	t.Parallel()
	key := newRig(t).key
	for name, network := range map[string]func(context.Context, string, string) (net.Conn, error){"connecting": swallow,
		"logging in": silence} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				_, err := New(Options{Network: network}).Dial(ctx,
					host.Target{Address: "192.0.2.1", User: "a", PrivateKey: key})
				if _, is := contract.AsProblem(err); is || !errors.Is(err, context.Canceled) {
					t.Errorf("returned %v, want the cancellation without a problem of the host", err)
				}
			})
		})
	}
}

func TestErrorsHoldNoKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	target := r.target()
	for _, text := range []string{fmt.Sprint(New(Options{})), fmt.Sprintf("%+v", r.dial(t))} {
		for line := range strings.Lines(string(target.PrivateKey)) {
			if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "---") &&
				strings.Contains(text, line) {
				t.Error("the error has the private key")
			}
		}
	}
}
