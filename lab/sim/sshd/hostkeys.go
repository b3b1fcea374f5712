package sshd

import (
	"bytes"
	"crypto/rand"
	"slices"

	"golang.org/x/crypto/ssh"
)

// With these requests, OpenSSH announces its host keys to a client after the login, and proves that it has them. See
// the file PROTOCOL of OpenSSH.
const (
	requestAnnounce = "hostkeys-00@openssh.com"
	requestProve    = "hostkeys-prove-00@openssh.com"
)

// hostKeys returns one key of each type: HostKey, and the keys in FurtherHostKeys that have other types.
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

// announce sends all host keys to a client. It does this directly after the login, before the server sends anything
// else.
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

// prove signs the client's challenge with each key that the client requests. If a key is unknown, prove refuses the
// whole request, as OpenSSH does.
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

// proof returns the data that the server signs in order to prove in a session that it has a key.
func proof(session, key []byte) []byte {
	return appendString(appendString(appendString(nil, []byte(requestProve)), session), key)
}

// sign signs data in the same way as OpenSSH. RSA keys use SHA-2, because the client requested this at the
// start of the connection.
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

// appendString appends bytes in the format of a string in SSH.
func appendString(to, text []byte) []byte {
	return append(to, ssh.Marshal(struct{ Text []byte }{text})...)
}
