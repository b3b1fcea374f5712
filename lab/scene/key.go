package scene

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"

	"golang.org/x/crypto/ssh"
)

// Key is an SSH key pair.
type Key struct {
	// PEM is the private key in the format of OpenSSH.
	PEM    []byte
	Public ssh.PublicKey
}

// NewKey creates an Ed25519 key pair.
func NewKey() (*Key, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making an SSH key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, fmt.Errorf("encoding the SSH key: %w", err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("encoding the SSH public key: %w", err)
	}
	return &Key{PEM: pem.EncodeToMemory(block), Public: key}, nil
}
