package apiclient

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/client-go/util/cert"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// pathPendingKey holds a key whose certificate was requested but has not arrived, so that a restarted daemon doesn't
// create a second key.
const pathPendingKey = contract.DirDaemonCerts + `\wicd-client-pending.key`

// PEM block types.
const (
	blockKey         = "EC PRIVATE KEY"
	blockCertificate = "CERTIFICATE"
)

// PendingKey returns the key for a certificate request: the key of an earlier call, or a new one. The directory must
// exist.
func PendingKey(files winos.Files) (*ecdsa.PrivateKey, error) {
	content, err := winos.ReadFile(files, pathPendingKey)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the daemon's key: %w", err)
	}
	// If the file contains no key, it is replaced.
	if key, parseErr := parseKey(content); parseErr == nil {
		return key, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the daemon's key: %w", err)
	}
	content, err = encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err = winos.WriteFile(files, pathPendingKey, bytes.NewReader(content), winos.AccessAdministrators); err != nil {
		return nil, fmt.Errorf("writing the daemon's key: %w", err)
	}
	return key, nil
}

// DropPendingKey deletes the pending key. A second call changes nothing.
func DropPendingKey(files winos.Files) error {
	if err := files.Remove(pathPendingKey); err != nil {
		return fmt.Errorf("removing the daemon's pending key: %w", err)
	}
	return nil
}

// NewRequest returns the certificate request of a node's daemon, in PEM.
func NewRequest(key *ecdsa.PrivateKey, node string) ([]byte, error) {
	if node == "" {
		return nil, errors.New("a daemon's certificate needs the name of its node")
	}
	subject := &pkix.Name{CommonName: contract.DaemonUserPrefix + node, Organization: []string{contract.DaemonGroup}}
	request, err := cert.MakeCSR(key, subject, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making the daemon's certificate request: %w", err)
	}
	return request, nil
}

// StoreCertificate makes certificate (PEM) the daemon's certificate. It must match the pending key, or the key of the
// stored certificate, and it must be for the daemon of node. StoreCertificate writes the certificate and the key
// atomically to one file, and then deletes the pending key. changed is false if this certificate was already stored.
func StoreCertificate(files winos.Files, certificate []byte, node string) (changed bool, err error) {
	key, current, err := keyFor(files, certificate)
	if err != nil {
		return false, err
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return false, err
	}
	content := slices.Concat(bytes.TrimSpace(certificate), []byte("\n"), encoded)
	leaf, err := ParseCertificate(content)
	if err != nil {
		return false, wrongError{err}
	}
	if err = check(leaf.Leaf, node); err != nil {
		return false, wrongError{err}
	}
	if !bytes.Equal(current, content) {
		if err = winos.WriteFile(files, contract.PathDaemonCertificate, bytes.NewReader(content),
			winos.AccessAdministrators); err != nil {
			return false, fmt.Errorf("writing the daemon's certificate: %w", err)
		}
		changed = true
	}
	return changed, DropPendingKey(files)
}

// wrongError means that a certificate doesn't match the request. A retry with the same certificate fails again.
type wrongError struct{ error }

func isWrong(err error) bool { return errors.As(err, new(wrongError)) }

// Unwrap is for errors.Is and errors.As.
func (e wrongError) Unwrap() error { return e.error }

// keyFor returns the key of a certificate. current is the stored content, or nil.
func keyFor(files winos.Files, certificate []byte) (key *ecdsa.PrivateKey, current []byte, err error) {
	current, err = winos.ReadFile(files, contract.PathDaemonCertificate)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the daemon's certificate: %w", err)
	}
	pending, err := winos.ReadFile(files, pathPendingKey)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the daemon's key: %w", err)
	}
	leaf, err := parseLeaf(certificate)
	if err != nil {
		return nil, nil, wrongError{err}
	}
	for _, content := range [][]byte{pending, current} {
		if key, err = parseKey(content); err == nil && key.PublicKey.Equal(leaf.PublicKey) {
			return key, current, nil
		}
	}
	return nil, nil, wrongError{errors.New("the certificate is for a key that this host does not have")}
}

func check(leaf *x509.Certificate, node string) error {
	if want := contract.DaemonUserPrefix + node; leaf.Subject.CommonName != want {
		return fmt.Errorf("the certificate is for %q, not %q", leaf.Subject.CommonName, want)
	}
	if !slices.Equal(leaf.Subject.Organization, []string{contract.DaemonGroup}) {
		return fmt.Errorf("the certificate is for the groups %q, not %q", leaf.Subject.Organization,
			contract.DaemonGroup)
	}
	return nil
}

// LoadCertificate reads the daemon's certificate and key.
func LoadCertificate(files winos.Files) (*tls.Certificate, error) {
	content, err := winos.ReadFile(files, contract.PathDaemonCertificate)
	if err != nil {
		return nil, fmt.Errorf("reading the daemon's certificate: %w", err)
	}
	return ParseCertificate(content)
}

// ParseCertificate parses a certificate and its key from one PEM text; Leaf is set.
func ParseCertificate(content []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, fmt.Errorf("parsing the daemon's certificate: %w", err)
	}
	return &pair, nil
}

// NodeName returns the node of a daemon's certificate.
func NodeName(leaf *x509.Certificate) (string, error) {
	node, ok := strings.CutPrefix(leaf.Subject.CommonName, contract.DaemonUserPrefix)
	if !ok || node == "" {
		return "", fmt.Errorf("the certificate's name %q is not a daemon's", leaf.Subject.CommonName)
	}
	return node, nil
}

func parseLeaf(content []byte) (*x509.Certificate, error) {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == blockCertificate {
			leaf, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("parsing the certificate: %w", err)
			}
			return leaf, nil
		}
	}
	return nil, errors.New("there is no certificate in what should be one")
}

func parseKey(content []byte) (*ecdsa.PrivateKey, error) {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == blockKey {
			return x509.ParseECPrivateKey(block.Bytes)
		}
	}
	return nil, errors.New("there is no key in what should be one")
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the daemon's key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), nil
}
