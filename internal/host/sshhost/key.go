package sshhost

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
)

// minRSABits is the length of the shortest RSA key that is accepted. NIST SP 800-131A disallows shorter keys.
const minRSABits = 2048

// PublicKey is the public part of a private key.
type PublicKey struct {
	// Line is the key as a line of authorized_keys, without a comment or newline.
	Line string
	// Hash is the lower-case hex SHA-256 of Line: the value of contract.PublicKeyHashAnnotation.
	Hash string
}

// ParseKey parses a private key in PEM or OpenSSH format. If the key is empty, encrypted, weak or of an unsupported
// type, the error is a *contract.Problem with the reason PrivateKeyInvalid. The problem says what is wrong with the
// key, and contains no part of the key.
func ParseKey(pem []byte) (PublicKey, error) {
	signer, err := parseSigner(pem)
	if err != nil {
		return PublicKey{}, err
	}
	line := authorizedLine(signer.PublicKey())
	return PublicKey{Line: line, Hash: contract.Digest([]byte(line))}, nil
}

// authorizedLine returns a key as "<type> <base64>".
func authorizedLine(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func parseSigner(pem []byte) (ssh.Signer, error) {
	refuse := func(why string) (ssh.Signer, error) {
		return nil, contract.NewProblem(contract.ReasonPrivateKeyInvalid, "the SSH private key %s", why)
	}
	pem = bytes.TrimSpace(pem)
	switch {
	case len(pem) == 0:
		return refuse("is empty")
	case bytes.HasPrefix(pem, []byte("PuTTY-User-Key-File")):
		return refuse("is in PuTTY's format; export it in OpenSSH's")
	case !bytes.Contains(pem, []byte("-----BEGIN ")):
		return refuse("is not in PEM format")
	case bytes.Contains(pem, []byte("PUBLIC KEY-----")):
		return refuse("is a public key")
	}
	raw, err := ssh.ParseRawPrivateKey(pem)
	if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); encrypted {
		return refuse("is encrypted")
	}
	if err != nil {
		// The error omits the cause, because parsers quote their input.
		return refuse("can't be read")
	}
	switch key := raw.(type) {
	case *rsa.PrivateKey:
		if key.N.BitLen() < minRSABits {
			return refuse("is an RSA key of less than 2048 bits")
		}
	case *ecdsa.PrivateKey, *ed25519.PrivateKey, ed25519.PrivateKey:
	default:
		return refuse("is neither Ed25519 nor ECDSA nor RSA")
	}
	signer, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		return refuse("is of a kind that SSH does not use")
	}
	if signer.PublicKey().Type() != ssh.KeyAlgoRSA {
		return signer, nil
	}
	// Never use the algorithm ssh-rsa, which signs with SHA-1.
	modern, err := ssh.NewSignerWithAlgorithms(signer.(ssh.AlgorithmSigner), algorithmsOf(signer.PublicKey()))
	if err != nil {
		return refuse("can't make modern signatures")
	}
	return modern, nil
}
