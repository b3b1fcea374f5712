package sshhost

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// prover connects to a host, expecting the key that it shows.
func (r *rig) prover(tb testing.TB) host.Prover {
	tb.Helper()
	target := r.target()
	target.HostKey = r.Server.HostKey()
	conn, err := New(Options{}).Dial(tb.Context(), target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
	})
	return conn.(host.Prover)
}

func further(tb testing.TB) []ssh.Signer {
	tb.Helper()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	var all []ssh.Signer
	for _, private := range []any{rsaKey, curve} {
		signer, err := ssh.NewSignerFromKey(private)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, signer)
	}
	return all
}

func TestAHostProvesItsHostKeysTheBestFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	others := further(t)
	r.Change(func(s *sshd.Settings) { s.FurtherHostKeys = others })
	want := []string{r.Server.HostKey(), authorizedLine(others[1].PublicKey()), authorizedLine(others[0].PublicKey())}
	prover := r.prover(t)
	for range 2 {
		got, err := prover.ProveHostKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("proves\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// What the proof is for: the key of the first contact is one that others have, too, and from the
// second on the host's own key counts.
func TestTheNextConnectionHoldsToTheHostsOwnKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	shared := r.Server.HostKey()
	proven, err := r.prover(t).ProveHostKeys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := proven[slices.IndexFunc(proven, func(line string) bool { return line != shared })]
	target := r.target()
	target.HostKey = own
	conn, err := New(Options{}).Dial(t.Context(), target)
	if err != nil {
		t.Fatalf("the host's own key is refused: %v", err)
	}
	if conn.HostKey() != own {
		t.Errorf("the host shows %s", conn.HostKey())
	}
	if err = conn.Close(); err != nil {
		t.Error(err)
	}
	// An impostor has the shared key, which any machine can read in its user data, and another own
	// key.
	r.Change(func(s *sshd.Settings) { s.FurtherHostKeys = further(t) })
	_, err = New(Options{}).Dial(t.Context(), target)
	wantReason(t, err, contract.ReasonHostKeyMismatch)
	r.Change(func(s *sshd.Settings) { s.FurtherHostKeys = []ssh.Signer{} })
	_, err = New(Options{}).Dial(t.Context(), target)
	wantReason(t, err, contract.ReasonHostKeyMismatch)
}

func TestAHostThatDoesNotSayItsHostKeysHasNone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *sshd.Settings){
		"a server that is not OpenSSH":           func(s *sshd.Settings) { s.Faults.HostKeys = sshd.HostKeysSilent },
		"a server that announces what is no key": func(s *sshd.Settings) { s.Faults.HostKeys = sshd.HostKeysGarbled },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Change(change)
			proven, err := r.prover(t).ProveHostKeys(t.Context())
			if err != nil || len(proven) > 0 {
				t.Errorf("proves %v: %v", proven, err)
			}
		})
	}
}

func TestAHostThatHasOneHostKeyProvesThatOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Change(func(s *sshd.Settings) { s.FurtherHostKeys = []ssh.Signer{} })
	proven, err := r.prover(t).ProveHostKeys(t.Context())
	if err != nil || !slices.Equal(proven, []string{r.Server.HostKey()}) {
		t.Errorf("proves %v: %v", proven, err)
	}
}

func TestHostKeysThatAreNotProvenAreNotBelieved(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]sshd.HostKeysFault{"refused": sshd.HostKeysUnproven,
		"signed by another key": sshd.HostKeysForged} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Change(func(s *sshd.Settings) { s.Faults.HostKeys = fault })
			proven, err := r.prover(t).ProveHostKeys(t.Context())
			wantReason(t, err, contract.ReasonHostKeyUnproven)
			if len(proven) > 0 {
				t.Errorf("proves %v", proven)
			}
		})
	}
}

func TestProvingEndsWithItsContextAndWithTheConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	prover := r.prover(t)
	r.Change(func(s *sshd.Settings) { s.Faults.Frozen = true })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := prover.ProveHostKeys(ctx); err == nil {
		t.Error("a frozen host proves something")
	}
	_, err := prover.ProveHostKeys(t.Context())
	wantReason(t, err, contract.ReasonConnectionLost)
}

func TestAnAnnouncementIsReadWithoutTrust(t *testing.T) {
	t.Parallel()
	text := func(parts ...[]byte) (all []byte) {
		for _, p := range parts {
			all = append(all, ssh.Marshal(struct{ Text []byte }{p})...)
		}
		return all
	}
	key := newHostKey(t).PublicKey().Marshal()
	many := [][]byte{}
	for range 100 {
		many = append(many, newHostKey(t).PublicKey().Marshal())
	}
	tests := map[string]struct {
		payload []byte
		want    int
	}{
		"nothing":                      {want: 0},
		"one key":                      {payload: text(key), want: 1},
		"the same key twice":           {payload: text(key, key), want: 1},
		"a type that nobody knows":     {payload: text(text([]byte("ssh-new@example.com"), []byte("x")), key), want: 1},
		"an empty key":                 {payload: text(nil, key), want: 1},
		"a key that is cut off":        {payload: text(key[:10], key), want: 1},
		"a length beyond the end":      {payload: append(text(key), 0xff, 0xff, 0xff, 0xff, 1), want: 1},
		"half a length":                {payload: append(text(key), 0, 0), want: 1},
		"more keys than any host has":  {payload: text(many...), want: maxHostKeys},
		"noise from the first byte on": {payload: []byte("\x7f\xff\xff\xffnoise"), want: 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := (&announcement{payload: test.payload}).keys(); len(got) != test.want {
				t.Errorf("reads %d keys, want %d", len(got), test.want)
			}
		})
	}
}

// FuzzAnnouncement feeds what a hostile host may announce: no panic, no more keys than are looked
// at, none twice.
func FuzzAnnouncement(f *testing.F) {
	f.Add([]byte{})
	f.Add(ssh.Marshal(struct{ Text []byte }{newHostKey(f).PublicKey().Marshal()}))
	f.Add([]byte{0, 0, 0, 3, 'a', 'b', 'c', 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, payload []byte) {
		keys := (&announcement{payload: payload}).keys()
		seen := map[string]bool{}
		for _, key := range keys {
			if line := authorizedLine(key); seen[line] {
				t.Errorf("%s twice", line)
			} else {
				seen[line] = true
			}
		}
		if len(keys) > maxHostKeys {
			t.Errorf("%d keys", len(keys))
		}
	})
}
