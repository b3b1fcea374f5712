package sshd

import (
	"bytes"
	"crypto/rand"
	"slices"

	"golang.org/x/crypto/ssh"
)

// The requests by which OpenSSH tells a client that logged in which host keys it has, and proves
// it: see its file PROTOCOL.
const (
	requestAnnounce = "hostkeys-00@openssh.com"
	requestProve    = "hostkeys-prove-00@openssh.com"
)

// hostKeys are all keys, each type once: HostKey, and those of the further ones that have another
// type.
func (s *Settings) hostKeys() []ssh.Signer {
	all := []ssh.Signer{s.HostKey}
	for _, key := range s.FurtherHostKeys {
		if !slices.ContainsFunc(
			all, func(other ssh.Signer) bool { return other.PublicKey().Type() == key.PublicKey().Type() }) {
			all = append(all, key)
		}
	}
	return all
}

// announce tells a client that has just logged in all host keys, before anything else is said.
func (s *Server) announce(conn *ssh.ServerConn) {
	settings := s.network.settings()
	var payload []byte
	switch settings.Faults.HostKeys {
	case HostKeysSilent:
		return
	case HostKeysGarbled:
		payload = appendString(appendString(nil, []byte("no key")), nil)
		payload = append(payload, 0xff, 0xff)
	default:
		for _, key := range settings.hostKeys() {
			payload = appendString(payload, key.PublicKey().Marshal())
		}
	}
	_, _, _ = conn.SendRequest(requestAnnounce, false, payload)
}

// prove signs what a client must see signed by each key that it names. OpenSSH refuses all of them
// when one is not its own.
func (s *Server) prove(conn *ssh.ServerConn, payload []byte) (signatures []byte, ok bool) {
	settings := s.network.settings()
	if settings.Faults.HostKeys == HostKeysUnproven {
		return nil, false
	}
	for len(payload) > 0 {
		var asked struct {
			Key  []byte
			Rest []byte `ssh:"rest"`
		}
		if ssh.Unmarshal(payload, &asked) != nil {
			return nil, false
		}
		payload = asked.Rest
		all := settings.hostKeys()
		at := slices.IndexFunc(all, func(key ssh.Signer) bool {
			return bytes.Equal(key.PublicKey().Marshal(),
				asked.Key)
		})
		if at < 0 {
			return nil, false
		}
		signature, err := sign(settings, all[at], proof(conn.SessionID(), asked.Key))
		if err != nil {
			return nil, false
		}
		signatures = appendString(signatures, ssh.Marshal(signature))
	}
	return signatures, true
}

// proof is what is signed to prove a key in a session.
func proof(session, key []byte) []byte {
	return appendString(appendString(appendString(nil, []byte(requestProve)), session), key)
}

// sign signs as OpenSSH does: RSA with SHA-2, since the client's key exchange asked for it.
func sign(settings *snapshot, key ssh.Signer, data []byte) (*ssh.Signature, error) {
	if settings.Faults.HostKeys == HostKeysForged {
		other, err := NewHostKey()
		if err != nil {
			return nil, err
		}
		key = other
	}
	if modern, is := key.(ssh.AlgorithmSigner); is && key.PublicKey().Type() == ssh.KeyAlgoRSA {
		return modern.SignWithAlgorithm(rand.Reader, data, ssh.KeyAlgoRSASHA512)
	}
	return key.Sign(rand.Reader, data)
}

// appendString appends bytes as SSH writes strings.
func appendString(to, text []byte) []byte {
	return append(to, ssh.Marshal(struct{ Text []byte }{text})...)
}
