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

// prover connects to a host, and expects the key that the host shows.
func (r *rig) prover(tb testing.TB) host.Conn {
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
	return conn
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

// Other hosts may have the same key that the host showed at the first contact. So from the second connection on, the
// host must show its own key.
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
	// An attacker has the shared key, which any machine can read in its user data, but not the host's own key.
	r.Change(func(s *sshd.Settings) { s.FurtherHostKeys = further(t) })
	_, err = New(Options{}).Dial(t.Context(), target)
	wantReason(t, err, contract.ReasonHostKeyMismatch)
	r.Change(func(s *sshd.Settings) { s.FurtherHostKeys = []ssh.Signer{} })
	_, err = New(Options{}).Dial(t.Context(), target)
	wantReason(t, err, contract.ReasonHostKeyMismatch)
}

// OpenSSH announces and proves all keys that it has loaded, even keys that HostKeyAlgorithms forbids. If the operator
// pinned such a key, no later connection could succeed.
func TestNoHostKeyIsProvenThatTheNextConnectionWouldNotBeShown(t *testing.T) {
	t.Parallel()
	others := further(t)
	for name, test := range map[string]struct {
		shows []string
		want  []ssh.Signer // in addition to the key that it showed
	}{
		"all":          {nil, []ssh.Signer{others[1], others[0]}},
		"no ECDSA":     {[]string{ssh.KeyAlgoED25519, ssh.KeyAlgoRSA}, others[:1]},
		"only Ed25519": {[]string{ssh.KeyAlgoED25519}, nil},
		"no RSA":       {[]string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256}, others[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Change(func(s *sshd.Settings) { s.FurtherHostKeys, s.HostKeyTypes = others, test.shows })
			want := []string{r.Server.HostKey()}
			for _, key := range test.want {
				want = append(want, authorizedLine(key.PublicKey()))
			}
			proven, err := r.prover(t).ProveHostKeys(t.Context())
			if err != nil || !slices.Equal(proven, want) {
				t.Errorf("proves\n%s\nwant\n%s\n%v", strings.Join(proven, "\n"), strings.Join(want, "\n"), err)
			}
			for _, key := range proven {
				target := r.target()
				target.HostKey = key
				conn, err := New(Options{}).Dial(t.Context(), target)
				if err != nil {
					t.Errorf("the host proved %s, but does not show it: %v", key, err)
				} else if err = conn.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestAHostThatDoesNotSayItsHostKeysHasNone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *sshd.Settings){
		"a server that is not OpenSSH":           func(s *sshd.Settings) { s.Faults.HostKeys = sshd.HostKeysSilent },
		"a server that announces an invalid key": func(s *sshd.Settings) { s.Faults.HostKeys = sshd.HostKeysGarbled },
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
		t.Error("a frozen host proves a key")
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
		"an unknown type":              {payload: text(text([]byte("ssh-new@example.com"), []byte("x")), key), want: 1},
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
			if got := announcedKeys(test.payload); len(got) != test.want {
				t.Errorf("reads %d keys, want %d", len(got), test.want)
			}
		})
	}
}

// FuzzAnnouncement reads announcements of a hostile host. There must be no panic, no duplicate key, and no more keys
// than the limit.
func FuzzAnnouncement(f *testing.F) {
	f.Add([]byte{})
	f.Add(ssh.Marshal(struct{ Text []byte }{newHostKey(f).PublicKey().Marshal()}))
	f.Add([]byte{0, 0, 0, 3, 'a', 'b', 'c', 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, payload []byte) {
		keys := announcedKeys(payload)
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

func TestAnOfferIsReadWithoutTrust(t *testing.T) {
	t.Parallel()
	type kexInit struct {
		Cookie                  [16]byte `sshtype:"20"`
		KeyAlgorithms, HostKeys []string
		Rest                    []byte `ssh:"rest"`
	}
	payload := ssh.Marshal(kexInit{KeyAlgorithms: []string{"x"}, HostKeys: []string{ssh.KeyAlgoED25519, "y"}})
	packet := append([]byte{0, 0, 1, 0, 8}, payload...)
	noOffer := slices.Clone(packet)
	noOffer[5] = 2 // SSH_MSG_IGNORE
	const greeting = "SSH-2.0-OpenSSH_for_Windows_9.5\r\n"
	for name, test := range map[string]struct {
		first string
		want  []string
	}{
		"an offer":               {greeting + string(packet), []string{ssh.KeyAlgoED25519, "y"}},
		"one behind other lines": {"hello\nyou\n" + greeting + string(packet), []string{ssh.KeyAlgoED25519, "y"}},
		"nothing":                {"", nil},
		"no greeting":            {"HTTP/1.1 400 Bad Request\r\n\r\n", nil},
		"a greeting only":        {greeting, nil},
		"another packet":         {greeting + string(noOffer), nil},
		"one that is cut off":    {greeting + string(packet[:30]), nil},
		"noise":                  {greeting + "\xff\xff\xff\xff\xff\x14noise", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := offered([]byte(test.first)); !slices.Equal(got, test.want) {
				t.Errorf("reads %q, want %q", got, test.want)
			}
		})
	}
}
