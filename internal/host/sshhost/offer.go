package sshhost

import (
	"bytes"
	"slices"

	"golang.org/x/crypto/ssh"
)

// msgKexInit is SSH_MSG_KEXINIT, with which each side begins a key exchange: RFC 4253, section 7.1.
const msgKexInit = 20

// offered are the host key algorithms that a host offers, read in the first bytes that it sent: its greeting in lines,
// and its first packet, which is not encrypted. What the library hashed of it is signed by the host key that it showed.
// They are none where the bytes are something else.
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

// shown are those of a host's keys that it shows to a client that expects them. OpenSSH announces and proves
// others, too: those that its HostKeyAlgorithms leave out.
func shown(keys []ssh.PublicKey, offered []string) []ssh.PublicKey {
	return slices.DeleteFunc(keys, func(key ssh.PublicKey) bool {
		return !slices.ContainsFunc(algorithmsOf(key), func(a string) bool { return slices.Contains(offered, a) })
	})
}
