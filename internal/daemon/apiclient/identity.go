package apiclient

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Identity is a client certificate of this host: its subject, and its files.
type Identity struct {
	Files winos.Files
	// Certificate is the path of the certificate with its key. Pending is the path of a key whose certificate was
	// requested but has not arrived. With this file, a restarted program uses the same key again.
	Certificate, Pending string
	// User and Groups are the subject of the certificate.
	User   string
	Groups []string
	// Addresses are the IP addresses that a certificate request contains in addition to the subject.
	Addresses []net.IP
	// Request is the prefix of the names of certificate requests.
	Request string
}

// Daemon returns the identity of a node's daemon.
func Daemon(files winos.Files, node string) Identity {
	return Identity{Files: files, Certificate: contract.PathDaemonCertificate,
		Pending: contract.DirDaemonCerts + `\wicd-client-pending.key`, User: contract.DaemonUserPrefix + node,
		Groups: []string{contract.DaemonGroup}, Request: "wicd-" + node + "-"}
}

// PendingKey returns the pending key. If there is none, PendingKey creates one. The directory of the key must exist.
func (i Identity) PendingKey() (*ecdsa.PrivateKey, error) {
	content, err := winos.ReadFile(i.Files, i.Pending)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the key of a certificate: %w", err)
	}
	// If the file contains no key, replace the file.
	pending, _ := keyutil.ParsePrivateKeyPEM(content)
	if key, ok := pending.(*ecdsa.PrivateKey); ok {
		return key, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil {
		content, err = keyutil.MarshalPrivateKeyToPEM(key)
	}
	if err != nil {
		return nil, fmt.Errorf("creating the key of a certificate: %w", err)
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

// NewRequest returns a certificate request for a key, in PEM.
func (i Identity) NewRequest(key *ecdsa.PrivateKey) ([]byte, error) {
	if strings.HasSuffix(i.User, ":") {
		return nil, fmt.Errorf("a certificate for %q needs a name", i.User)
	}
	request, err := cert.MakeCSR(key, &pkix.Name{CommonName: i.User, Organization: i.Groups}, nil, i.Addresses)
	if err != nil {
		return nil, fmt.Errorf("creating the certificate request: %w", err)
	}
	return request, nil
}

// StoreCertificate stores certificate (PEM) as the identity's certificate. The certificate must match the pending key
// and have the identity's subject. Otherwise, StoreCertificate returns a *contract.Problem: a retry with the same
// certificate would fail again. StoreCertificate writes the certificate and the key atomically to one file, and then
// deletes the pending key. A second call with the same certificate changes nothing.
func (i Identity) StoreCertificate(certificate []byte) error {
	chain, err := cert.ParseCertsPEM(certificate)
	if err != nil {
		return contract.NewProblem(contract.ReasonInternal, "there is no certificate in what should be one: %v", err)
	}
	if stored, err := i.LoadCertificate(); err == nil && stored.Leaf.Equal(chain[0]) {
		return i.DropPendingKey()
	}
	key, err := winos.ReadFile(i.Files, i.Pending)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the key of a certificate: %w", err)
	}
	content := slices.Concat(bytes.TrimSpace(certificate), []byte("\n"), key)
	if _, err = ParseCertificate(content); err != nil {
		return contract.NewProblem(contract.ReasonInternal,
			"the certificate is for a key that this host does not have: %v", err)
	}
	if err = i.check(chain[0]); err != nil {
		return contract.NewProblem(contract.ReasonInternal, "%v", err)
	}
	if err = winos.WriteFile(i.Files, i.Certificate, bytes.NewReader(content), winos.AccessAdministrators); err != nil {
		return fmt.Errorf("writing the client certificate: %w", err)
	}
	return i.DropPendingKey()
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

// LoadCertificate reads the identity's certificate and key from their file.
func (i Identity) LoadCertificate() (*tls.Certificate, error) {
	content, err := winos.ReadFile(i.Files, i.Certificate)
	if err != nil {
		return nil, fmt.Errorf("reading the client certificate: %w", err)
	}
	return ParseCertificate(content)
}

// ParseCertificate parses a PEM text with a certificate and its key. It sets Leaf in the result.
func ParseCertificate(content []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return nil, fmt.Errorf("parsing the client certificate: %w", err)
	}
	return &pair, nil
}

// NodeName returns the name of the node in the certificate of a node's daemon.
func NodeName(leaf *x509.Certificate) (string, error) {
	node, ok := strings.CutPrefix(leaf.Subject.CommonName, contract.DaemonUserPrefix)
	if !ok || node == "" {
		return "", fmt.Errorf("the certificate's name %q is not a daemon's", leaf.Subject.CommonName)
	}
	return node, nil
}
