package program

import (
	"context"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
)

// managedCertificate is a certificate that a kubelet renews.
type managedCertificate struct {
	store   *pair
	signer  string
	purpose certificatesv1.KeyUsage
	// names and addresses are the names and addresses in a serving certificate. A client certificate has none.
	names     []string
	addresses []net.IP
}

// clientCertificate returns the description of kubelet's client certificate.
func (k *kubelet) clientCertificate() managedCertificate {
	return managedCertificate{store: k.identity, signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		purpose: certificatesv1.UsageClientAuth}
}

// servingCertificate returns the description of kubelet's serving certificate.
func (k *kubelet) servingCertificate() managedCertificate {
	return managedCertificate{
		store: &pair{files: k.Host.Files, path: k.flags.certDir + serverPair,
			replaced: func() { k.log.Info("got serving certificate") }},
		signer: certificatesv1.KubeletServingSignerName, purpose: certificatesv1.UsageServerAuth,
		names: []string{k.node}, addresses: []net.IP{k.ip.AsSlice()},
	}
}

const (
	// A certificate is replaced when it is between these fractions of its lifetime. kubelet chooses a random time in
	// between, so that not all nodes renew their certificates at the same time.
	earliestRotation, latestRotation = 0.7, 0.9
	// requestTimeout is how long kubelet waits for the certificate of one request. Then it sends a new request.
	requestTimeout              = 15 * time.Minute
	firstRotation, lastRotation = 2 * time.Second, 32 * time.Second
	rotationBackoff             = 2
)

// Until ctx ends, keepCertificate requests a certificate and renews it before it expires. The certificate manager of
// client-go can't be used here, because it doesn't stop when its context ends.
func (k *kubelet) keepCertificate(ctx context.Context, w managedCertificate) error {
	endless := func(error) bool { return false }
	for {
		if pause := k.untilRotation(w); pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil
			}
		} else if err := k.obtainCertificate(ctx, k.server.client, w, endless); err != nil {
			return err // ctx has ended
		}
	}
}

// obtainCertificate sends requests for a certificate until it gets one. Each request has a new key. It stops and
// returns the last error if ctx ends or if givesUp returns true for the error.
func (k *kubelet) obtainCertificate(ctx context.Context, server kubernetes.Interface, w managedCertificate,
	givesUp func(err error) bool) error {
	for retry := firstRotation; ; retry = min(rotationBackoff*retry, lastRotation) {
		err := k.replaceCertificate(ctx, server, w)
		if err == nil {
			return nil
		}
		k.log.Info("certificate request was not signed", "signer", w.signer, "err", err.Error())
		if givesUp(err) {
			return err
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return err
		}
	}
}

// untilRotation returns how long the current certificate will be used. It returns 0 if there is no certificate, or if
// the certificate lacks a name.
func (k *kubelet) untilRotation(w managedCertificate) time.Duration {
	current := w.store.get()
	if current == nil || !w.covered(current.Leaf) {
		return 0
	}
	lifetime := current.Leaf.NotAfter.Sub(current.Leaf.NotBefore)
	part := earliestRotation + rand.Float64()*(latestRotation-earliestRotation)
	return current.Leaf.NotBefore.Add(time.Duration(float64(lifetime) * part)).Sub(k.Host.System.Now())
}

func (w managedCertificate) covered(leaf *x509.Certificate) bool {
	for _, name := range w.names {
		if !slices.Contains(leaf.DNSNames, name) {
			return false
		}
	}
	for _, address := range w.addresses {
		if !slices.ContainsFunc(leaf.IPAddresses, address.Equal) {
			return false
		}
	}
	return true
}

// replaceCertificate requests a certificate for a new key, and waits until the certificate is issued.
func (k *kubelet) replaceCertificate(ctx context.Context, server kubernetes.Interface, w managedCertificate) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	keyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	subject := k.subject()
	request, err := cert.MakeCSR(key, &subject, w.names, w.addresses)
	if err != nil {
		return fmt.Errorf("making a certificate request: %w", err)
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, w.purpose}
	name, uid, err := csr.RequestCertificateWithContext(ctx, server, request, "", w.signer, nil, usages, key)
	if err != nil {
		return fmt.Errorf("requesting a certificate: %w", err)
	}
	k.log.Info("waiting for a certificate to be issued", "csr", name, "signer", w.signer)
	chain, err := csr.WaitForCertificate(ctx, server, name, uid)
	if err != nil {
		return fmt.Errorf("waiting for certificate request %s: %w", name, err)
	}
	return w.store.update(chain, keyPEM)
}
