package sshhost

import (
	"bytes"
	"slices"

	"golang.org/x/crypto/ssh"
)

// msgKexInit is SSH_MSG_KEXINIT, which starts a key exchange: RFC 4253, section 7.1.
const msgKexInit = 20

// The function `offered` parses the first bytes from a host, and returns the host key algorithms that the host offers,
// or nil if parsing fails. The first bytes are the greeting lines and the first packet, which isn't encrypted. They are
// authentic, because the host signs their hash with its host key, and the library verifies the signature.
func offered(first []byte) []string {
	for isGreeting := true; isGreeting; {
		line, rest, more := bytes.Cut(first, []byte("\n"))
		if !more {
			return nil
		}
		first, isGreeting = rest, !bytes.HasPrefix(line, []byte("SSH-"))
	}
	var packet struct {
		Length                  uint32
		Padding, Kind           uint8
		Cookie                  [16]byte
		KeyAlgorithms, HostKeys []string
		Rest                    []byte `ssh:"rest"`
	}
	if ssh.Unmarshal(first, &packet) != nil || packet.Kind != msgKexInit {
		return nil
	}
	return packet.HostKeys
}

// The function `shown` returns only the keys that the host would use in a handshake. OpenSSH also announces and proves
// keys that its setting HostKeyAlgorithms excludes, and a client that expects such a key could not connect.
func shown(keys []ssh.PublicKey, offered []string) []ssh.PublicKey {
	return slices.DeleteFunc(keys, func(key ssh.PublicKey) bool {
		return !slices.ContainsFunc(algorithmsOf(key), func(a string) bool { return slices.Contains(offered, a) })
	})
}
