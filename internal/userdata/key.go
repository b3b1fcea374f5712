package userdata

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"
)

// canonicalLine parses a line of authorized_keys, and returns "<type> <base64>", which is safe in single quotes.
func canonicalLine(line string) (string, error) {
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || comment != "" || len(options) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return "", errors.New("not one key of the form <type> <base64>")
	}
	return lineOf(key), nil
}

// HostKeyLine returns the public part of the shared host key as "<type> <base64>". It accepts only an unencrypted
// Ed25519 private key in OpenSSH's PEM. On Windows, sshd reads one key of each type from a separate file. The shared
// key replaces only the Ed25519 key. The keys of the other types are the machine's own.
func HostKeyLine(pem []byte) (string, error) {
	raw, err := ssh.ParseRawPrivateKey(pem)
	if err != nil {
		return "", errors.New("the shared host key can't be read") // the parser's error may quote the key
	}
	key, ok := raw.(*ed25519.PrivateKey)
	if !ok || !bytes.HasPrefix(pem, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\n")) {
		return "", errors.New("the shared host key is not an Ed25519 key in OpenSSH's format")
	}
	signer, err := ssh.NewSignerFromKey(*key)
	if err != nil {
		return "", errors.New("the shared host key can't be used")
	}
	return lineOf(signer.PublicKey()), nil
}

func lineOf(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}
