package openshift

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// ExporterServerName is what the exporter's certificate is for: the Service of nodes' metrics.
const ExporterServerName = "windows-exporter." + contract.OperatorNamespace + ".svc"

// RotateExporterKey plays the service CA operator's part for the Service of nodes' metrics: it
// writes the Secret with a new key and a certificate for it, and answers the certificate in PEM,
// which verifies itself. The operator's namespace must exist.
func RotateExporterKey(ctx context.Context, config *rest.Config) ([]byte, error) {
	certificate, key, err := servingPair(ExporterServerName)
	if err != nil {
		return nil, fmt.Errorf("making a key for the exporter: %w", err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: contract.ExporterTLSSecret},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}
	if err = c.Create(ctx, secret.DeepCopy()); apierrors.IsAlreadyExists(err) {
		err = c.Update(ctx, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("writing the exporter's key: %w", err)
	}
	return certificate, nil
}

func servingPair(name string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		BasicConstraintsValid: true, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(2, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), nil
}
