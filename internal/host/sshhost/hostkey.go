package sshhost

import (
	"bytes"
	"errors"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// errHostKeyDiffers ends a handshake in which the host shows another key than expected.
var errHostKeyDiffers = errors.New("the host key differs")

// hostKeyCheck is what is expected of a host's key and what was seen. The callback runs in
// goroutines of the SSH library, again with every change of session keys.
type hostKeyCheck struct {
	// expected is nil when any key is accepted.
	expected ssh.PublicKey

	mu   sync.Mutex
	last ssh.PublicKey
}

// newHostKeyCheck reads the expected key, "<type> <base64>"; empty accepts any.
func newHostKeyCheck(expected string) (*hostKeyCheck, error) {
	if expected == "" {
		return &hostKeyCheck{}, nil
	}
	key, _, _, rest, err := ssh.ParseAuthorizedKey([]byte(expected))
	if err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("not of the form <type> <base64>")
	}
	return &hostKeyCheck{expected: key}, nil
}

// callback is ssh.HostKeyCallback. A host may not change its key within a connection.
func (h *hostKeyCheck) callback(_ string, _ net.Addr, key ssh.PublicKey) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.last
	h.last = key
	if different(key, h.expected) || different(key, before) {
		return errHostKeyDiffers
	}
	return nil
}

// seen is what the host showed and proved to own; nil when it never got that far.
func (h *hostKeyCheck) seen() ssh.PublicKey {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

// differs says whether the host showed another key than the expected one.
func (h *hostKeyCheck) differs() bool { return different(h.seen(), h.expected) }

// different says whether two known keys are not the same.
func different(a, b ssh.PublicKey) bool {
	return a != nil && b != nil && !bytes.Equal(a.Marshal(), b.Marshal())
}

// algorithms are the host key algorithms to offer, best first: those of the expected key only, so
// that a host with several keys shows that one. Certificates and SHA-1 are not among them.
func (h *hostKeyCheck) algorithms() []string {
	if h.expected == nil {
		return []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
			ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return algorithmsOf(h.expected)
}

// algorithmsOf are the host key algorithms with which a key may be shown, best first.
func algorithmsOf(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key.Type()}
}
