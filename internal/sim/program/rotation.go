package program

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
)

// rotateClient replaces the client certificate at 70 to 90 % of its lifetime, with client-go's own manager as in the real kubelet.
func (k *kubelet) rotateClient(ctx context.Context) error {
	return k.keepCertificate(ctx, k.identity, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth,
		&x509.CertificateRequest{Subject: k.subject()})
}

// keepServing gets a serving certificate for the Node's addresses, and replaces it in time. Nothing is served with it.
func (k *kubelet) keepServing(ctx context.Context) error {
	serving := &pair{files: k.Host.Files, path: k.flags.certDir + serverPair, replaced: func() { k.log.Info("got serving certificate") }}
	return k.keepCertificate(ctx, serving, certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth, &x509.CertificateRequest{
		Subject: k.subject(), DNSNames: []string{k.node}, IPAddresses: []net.IP{k.ip.AsSlice()},
	})
}

// keepCertificate starts the management of one certificate, which goes on until ctx ends.
func (k *kubelet) keepCertificate(
	ctx context.Context, store *pair, signer string, purpose certificatesv1.KeyUsage, template *x509.CertificateRequest,
) error {
	manager, err := certificate.NewManager(&certificate.Config{
		Ctx:              &ctx,
		ClientsetFn:      func(*tls.Certificate) (kubernetes.Interface, error) { return k.server.client, nil },
		Template:         template,
		SignerName:       signer,
		Usages:           []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, purpose},
		CertificateStore: store,
	})
	if err != nil {
		return fmt.Errorf("managing certificates of %s: %w", signer, err)
	}
	manager.Start()
	return nil
}
