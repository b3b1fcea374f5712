package sshhost

import (
	"bytes"
	"errors"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

var errHostKeyDiffers = errors.New("the host key differs")

// hostKeyCheck compares a host's key with the expected key. The SSH library calls the method `callback` from its own
// goroutines, once in the handshake and again at each change of the session keys.
type hostKeyCheck struct {
	// expected is nil if any key is accepted.
	expected ssh.PublicKey

	mu   sync.Mutex
	last ssh.PublicKey
}

// newHostKeyCheck parses the expected key, "<type> <base64>". If expected is empty, the check accepts any key.
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

// callback implements ssh.HostKeyCallback. It refuses an unexpected key, and a change of the key within a connection.
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

// The method `seen` returns the key that the host proved to own, or nil if the handshake didn't get that far.
func (h *hostKeyCheck) seen() ssh.PublicKey {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}

func (h *hostKeyCheck) differs() bool { return different(h.seen(), h.expected) }

// The function `different` reports whether both keys are known and differ.
func different(a, b ssh.PublicKey) bool {
	return a != nil && b != nil && !bytes.Equal(a.Marshal(), b.Marshal())
}

// algorithms returns the host key algorithms to offer, best first. If a key is expected, it returns only this key's
// algorithms, so that a host with several keys uses this key. Certificates and SHA-1 are never offered.
func (h *hostKeyCheck) algorithms() []string {
	if h.expected == nil {
		return []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
			ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return algorithmsOf(h.expected)
}

func algorithmsOf(key ssh.PublicKey) []string {
	if key.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{key.Type()}
}
