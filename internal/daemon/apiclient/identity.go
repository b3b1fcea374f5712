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

// Identity is a client certificate of this host: its subject, and its files.
type Identity struct {
	Files winos.Files
	// Certificate is the path of the certificate with its key. Pending is the path of a key whose certificate was
	// requested but has not arrived, so that a restarted program doesn't create a second key.
	Certificate, Pending string
	// User and Groups are the subject.
	User   string
	Groups []string
	// Request is the prefix of the names of certificate requests.
	Request string
}

// Daemon returns the identity of a node's daemon.
func Daemon(files winos.Files, node string) Identity {
	return Identity{Files: files, Certificate: contract.PathDaemonCertificate,
		Pending: contract.DirDaemonCerts + `\wicd-client-pending.key`, User: contract.DaemonUserPrefix + node,
		Groups: []string{contract.DaemonGroup}, Request: "wicd-" + node + "-"}
}

// PEM block types.
const (
	blockKey         = "EC PRIVATE KEY"
	blockCertificate = "CERTIFICATE"
)

// PendingKey returns the key for a certificate request: the key of an earlier call, or a new one. The directory must
// exist.
func (i Identity) PendingKey() (*ecdsa.PrivateKey, error) {
	content, err := winos.ReadFile(i.Files, i.Pending)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the key of a certificate: %w", err)
	}
	// If the file contains no key, it is replaced.
	if key, parseErr := parseKey(content); parseErr == nil {
		return key, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of a certificate: %w", err)
	}
	content, err = encodeKey(key)
	if err != nil {
		return nil, err
	}
	if err = winos.WriteFile(i.Files, i.Pending, bytes.NewReader(content), winos.AccessAdministrators); err != nil {
		return nil, fmt.Errorf("writing the key of a certificate: %w", err)
	}
	return key, nil
}

// DropPendingKey deletes the pending key. A second call changes nothing.
func (i Identity) DropPendingKey() error {
	if err := i.Files.Remove(i.Pending); err != nil {
		return fmt.Errorf("removing a pending key: %w", err)
	}
	return nil
}

// NewRequest returns the certificate request, in PEM.
func (i Identity) NewRequest(key *ecdsa.PrivateKey) ([]byte, error) {
	if strings.HasSuffix(i.User, ":") {
		return nil, fmt.Errorf("a certificate for %q needs a name", i.User)
	}
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: i.User, Organization: i.Groups}, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("making the certificate request: %w", err)
	}
	return request, nil
}

// StoreCertificate makes certificate (PEM) the identity's certificate. It must match the pending key, or the key of the
// stored certificate, and it must have the identity's subject. StoreCertificate writes the certificate and the key
// atomically to one file, and then deletes the pending key. changed is false if this certificate was already stored.
func (i Identity) StoreCertificate(certificate []byte) (changed bool, err error) {
	key, current, err := i.keyFor(certificate)
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
	if err = i.check(leaf.Leaf); err != nil {
		return false, wrongError{err}
	}
	if !bytes.Equal(current, content) {
		if err = winos.WriteFile(i.Files, i.Certificate, bytes.NewReader(content),
			winos.AccessAdministrators); err != nil {
			return false, fmt.Errorf("writing the client certificate: %w", err)
		}
		changed = true
	}
	return changed, i.DropPendingKey()
}

// wrongError means that a certificate doesn't match the request. A retry with the same certificate fails again.
type wrongError struct{ error }

func isWrong(err error) bool { return errors.As(err, new(wrongError)) }

// Unwrap is for errors.Is and errors.As.
func (e wrongError) Unwrap() error { return e.error }

// keyFor returns the key of a certificate. current is the stored content, or nil.
func (i Identity) keyFor(certificate []byte) (key *ecdsa.PrivateKey, current []byte, err error) {
	current, err = winos.ReadFile(i.Files, i.Certificate)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the client certificate: %w", err)
	}
	pending, err := winos.ReadFile(i.Files, i.Pending)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the key of a certificate: %w", err)
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

func (i Identity) check(leaf *x509.Certificate) error {
	if leaf.Subject.CommonName != i.User {
		return fmt.Errorf("the certificate is for %q, not %q", leaf.Subject.CommonName, i.User)
	}
	if !slices.Equal(leaf.Subject.Organization, i.Groups) {
		return fmt.Errorf("the certificate is for the groups %q, not %q", leaf.Subject.Organization, i.Groups)
	}
	return nil
}

// LoadCertificate reads the daemon's certificate and key.
func (i Identity) LoadCertificate() (*tls.Certificate, error) {
	content, err := winos.ReadFile(i.Files, i.Certificate)
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate: %w", err)
	}
	return ParseCertificate(content)
}

// ParseCertificate parses a certificate and its key from one PEM text; Leaf is set.
func ParseCertificate(content []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, fmt.Errorf("parsing the client certificate: %w", err)
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
		return nil, fmt.Errorf("encoding the key of a certificate: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), nil
}
