package sshd

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// AuthorizedKeysPath is the path of the file with the keys of all administrators. The server reads the file each time a
// client offers a key.
const AuthorizedKeysPath = `C:\ProgramData\ssh\administrators_authorized_keys`

// NewHostKey creates an Ed25519 host key.
func NewHostKey() (ssh.Signer, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("making a host key: %w", err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		return nil, fmt.Errorf("making a host key: %w", err)
	}
	return signer, nil
}

func newECDSAHostKey() (ssh.Signer, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a host key: %w", err)
	}
	signer, err := ssh.NewSignerFromSigner(private)
	if err != nil {
		return nil, fmt.Errorf("making a host key: %w", err)
	}
	return signer, nil
}

// Authorize replaces the authorized keys. They apply to later logins.
func Authorize(files winos.Files, keys ...ssh.PublicKey) error {
	var lines bytes.Buffer
	for _, key := range keys {
		lines.Write(ssh.MarshalAuthorizedKey(key))
	}
	if err := files.MkdirAll(directory(AuthorizedKeysPath), winos.AccessInherit); err != nil {
		return fmt.Errorf("making sshd's directory: %w", err)
	}
	if err := winos.WriteFile(files, AuthorizedKeysPath, &lines, winos.AccessAdministrators); err != nil {
		return fmt.Errorf("writing the administrators' keys: %w", err)
	}
	return nil
}

// The function authorized reports whether a key is in the administrators' file. Like OpenSSH, it skips invalid lines.
func authorized(files winos.Files, key ssh.PublicKey) bool {
	content, err := winos.ReadFile(files, AuthorizedKeysPath)
	if err != nil {
		return false
	}
	wanted := key.Marshal()
	for line := range bytes.Lines(content) {
		known, _, _, _, err := ssh.ParseAuthorizedKey(line)
		if err == nil && bytes.Equal(known.Marshal(), wanted) {
			return true
		}
	}
	return false
}
