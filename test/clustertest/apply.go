package clustertest

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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Apply creates objects with their status. If an object exists, Apply updates it.
func Apply(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, object := range objects {
		what := fmt.Sprintf("%T %s", object, object.GetName())
		want, ok := object.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("copying %s", what)
		}
		err := c.Create(ctx, object)
		if apierrors.IsAlreadyExists(err) {
			current, isObject := object.DeepCopyObject().(client.Object)
			if !isObject {
				return fmt.Errorf("copying %s", what)
			}
			if err = c.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
				return fmt.Errorf("reading %s: %w", what, err)
			}
			object.SetResourceVersion(current.GetResourceVersion())
			err = c.Update(ctx, object)
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", what, err)
		}
		want.SetResourceVersion(object.GetResourceVersion())
		if err = c.Status().Update(ctx, want); err != nil && !apierrors.IsNotFound(err) &&
			!apierrors.IsMethodNotSupported(err) {
			return fmt.Errorf("writing the status of %s: %w", what, err)
		}
	}
	return nil
}

// Certificate creates a CA certificate in PEM. The key is discarded.
func Certificate(name string) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
