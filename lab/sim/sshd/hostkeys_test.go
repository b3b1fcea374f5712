package sshd_test

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// peer is a client that receives the SSH messages of the host.
type peer struct {
	ssh.Conn
	requests <-chan *ssh.Request
}

func (h *host) peer(tb testing.TB, algorithms ...string) peer {
	tb.Helper()
	tcp, err := new(net.Dialer).DialContext(tb.Context(), "tcp", h.Address().String())
	if err != nil {
		tb.Fatal(err)
	}
	conn, channels, requests, err := ssh.NewClientConn(tcp, "", &ssh.ClientConfig{
		User: "Administrator", Auth: []ssh.AuthMethod{ssh.PublicKeys(h.key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), HostKeyAlgorithms: algorithms,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	go func() {
		for offered := range channels {
			_ = offered.Reject(ssh.Prohibited, "")
		}
	}()
	return peer{conn, requests}
}

// announced waits until the host has announced its keys, and returns them.
func (p peer) announced(tb testing.TB) (keys [][]byte) {
	tb.Helper()
	select {
	case r := <-p.requests:
		if r.Type != "hostkeys-00@openssh.com" || r.WantReply {
			tb.Fatalf("the host sends the request %s; it wants a reply: %v", r.Type, r.WantReply)
		}
		return split(tb, r.Payload)
	case <-time.After(time.Minute):
		tb.Fatal("the host does not announce its keys")
		return nil
	}
}

func split(tb testing.TB, payload []byte) (parts [][]byte) {
	tb.Helper()
	for len(payload) > 0 {
		var next struct {
			Part []byte
			Rest []byte `ssh:"rest"`
		}
		if err := ssh.Unmarshal(payload, &next); err != nil {
			tb.Fatal(err)
		}
		parts, payload = append(parts, next.Part), next.Rest
	}
	return parts
}

func join(parts ...[]byte) (payload []byte) {
	for _, p := range parts {
		payload = append(payload, ssh.Marshal(struct{ Part []byte }{p})...)
	}
	return payload
}

func TestAHostHasAnEd25519AndAnECDSAKeyAndShowsTheOneThatIsAskedFor(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	keys := h.peer(t).announced(t)
	types := []string{}
	for _, blob := range keys {
		key, err := ssh.ParsePublicKey(blob)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, key.Type())
		h.peer(t, key.Type())
	}
	if !slices.Equal(types, []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256}) {
		t.Errorf("the host announces the key types %v", types)
	}
	shown, _, _, _, err := ssh.ParseAuthorizedKey([]byte(h.HostKey()))
	if err != nil || !bytes.Equal(shown.Marshal(), keys[0]) {
		t.Errorf("HostKey returns %s: %v", h.HostKey(), err)
	}
}

func TestAHostProvesItsKeysForThisSessionOnly(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	p := h.peer(t)
	keys := p.announced(t)
	ok, answer, err := p.SendRequest("hostkeys-prove-00@openssh.com", true, join(keys[1], keys[0]))
	if err != nil || !ok {
		t.Fatalf("the host does not prove its keys: %v", err)
	}
	signatures := split(t, answer)
	if len(signatures) != 2 {
		t.Fatalf("there are %d signatures", len(signatures))
	}
	for i, blob := range [][]byte{keys[1], keys[0]} {
		key, err := ssh.ParsePublicKey(blob)
		if err != nil {
			t.Fatal(err)
		}
		var signature ssh.Signature
		if err = ssh.Unmarshal(signatures[i], &signature); err != nil {
			t.Fatal(err)
		}
		if err = key.Verify(join([]byte("hostkeys-prove-00@openssh.com"), p.SessionID(), blob),
			&signature); err != nil {
			t.Errorf("the proof of key %d is invalid: %v", i, err)
		}
		if key.Verify(join([]byte("hostkeys-prove-00@openssh.com"), h.peer(t).SessionID(), blob), &signature) == nil {
			t.Errorf("the proof of key %d is also valid for another session", i)
		}
	}
}

func TestAHostProvesNoKeyButItsOwn(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	p := h.peer(t)
	own := p.announced(t)[0]
	for name, payload := range map[string][]byte{
		"another's":                join(newKey(t).PublicKey().Marshal()),
		"another's beside its own": join(own, newKey(t).PublicKey().Marshal()),
		"no key":                   join([]byte("rubbish")), "cut off": join(own)[:20],
	} {
		if ok, _, err := p.SendRequest("hostkeys-prove-00@openssh.com", true, payload); ok || err != nil {
			t.Errorf("%s: the proofs are %v, %v", name, ok, err)
		}
	}
}

func TestAReinstalledHostAnnouncesItsNewKeys(t *testing.T) {
	t.Parallel()
	h := startHost(t, nil)
	before := h.peer(t).announced(t)
	h.Change(func(s *sshd.Settings) { s.HostKey, s.FurtherHostKeys = newKey(t), []ssh.Signer{} })
	after := h.peer(t).announced(t)
	if len(after) != 1 || slices.ContainsFunc(before, func(key []byte) bool { return bytes.Equal(key, after[0]) }) {
		t.Errorf("after the change, the host announces %d keys", len(after))
	}
	if !strings.HasPrefix(h.HostKey(), ssh.KeyAlgoED25519) {
		t.Errorf("HostKey returns %s", h.HostKey())
	}
}
