package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/windows-nodes/wmco/lab/port"
)

const (
	caLife = 10 * 365 * 24 * time.Hour
	// certificateLife is longer than the lifetime of any lab, and shorter than the lifetime of its CA.
	certificateLife = 365 * 24 * time.Hour
	// clockSkew is subtracted from the begin of the validity of certificates, for hosts whose simulated clock is
	// slightly behind.
	clockSkew = time.Hour
)

// signingCA is the CA of the cluster. Keys are ECDSA P-256: all keys of a start are generated within a millisecond, and
// every component accepts them.
type signingCA struct {
	certificate *x509.Certificate
	certPEM     []byte
	key         *ecdsa.PrivateKey
}

// pair is a certificate and its key, PEM-encoded.
type pair struct{ cert, key []byte }

func newCA(now time.Time) (*signingCA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the cluster's CA key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "wmco-lab"},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the cluster's CA certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's CA certificate: %w", err)
	}
	return &signingCA{certificate: certificate, certPEM: encodeCertificate(der), key: key}, nil
}

// The method client issues a certificate for a user and its groups.
func (a *signingCA) client(user string, groups ...string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// The method serving issues the certificate of the servers in the lab. The first address of the service network is the
// address of the API server for pods.
func (a *signingCA) serving() (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.ParseIP(port.Loopback), net.ParseIP(apiServiceIP)},
	})
}

// issue sets the common fields of the certificates of the lab and signs the template for a new key.
func (a *signingCA) issue(template *x509.Certificate) (pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return pair{}, fmt.Errorf("choosing a serial number: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making a key for %s: %w", template.Subject.CommonName, err)
	}
	now := time.Now()
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = now.Add(-clockSkew), now.Add(certificateLife)
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing a certificate for %s: %w", template.Subject.CommonName, err)
	}
	keyPEM, err := encodePrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: encodeCertificate(der), key: keyPEM}, nil
}

// newSigningKey creates the key pair for service account tokens. cert contains the public key.
func newSigningKey() (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("making the service account key: %w", err)
	}
	private, err := encodePrivateKey(key)
	if err != nil {
		return pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return pair{}, fmt.Errorf("encoding the service account key: %w", err)
	}
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), key: private}, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodePrivateKey(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
