package program

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
)

// Names that OVN-Kubernetes uses for its components on nodes and for the certificates of these components:
// https://github.com/ovn-kubernetes/ovn-kubernetes/blob/master/docs/node-identity.md
const (
	overlayUserPrefix = "system:ovn-node:"
	overlayGroup      = "system:ovn-nodes"
	overlayStore      = `\ovnkube-client-`
)

// identify requests a certificate for the hybrid overlay. If the hybrid overlay has a valid certificate, identify does
// nothing. The cluster's network plugin approves the request. The operator doesn't.
func (o *overlay) identify(ctx context.Context) {
	current := &pair{files: o.Host.Files, path: o.certDir + overlayStore + "current.pem", replaced: func() {}}
	if now := current.get(); now != nil && o.Host.System.Now().Before(now.Leaf.NotAfter) {
		return
	}
	if err := o.request(ctx, current); err != nil && ctx.Err() == nil {
		o.log.Info("the certificate can't be requested", "err", err.Error())
	}
}

func (o *overlay) request(ctx context.Context, current *pair) error {
	keyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	subject := pkix.Name{CommonName: overlayUserPrefix + o.node, Organization: []string{overlayGroup}}
	request, err := cert.MakeCSR(key, &subject, nil, nil)
	if err != nil {
		return fmt.Errorf("making a certificate request: %w", err)
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	name, uid, err := csr.RequestCertificateWithContext(ctx, o.server.client, request, "",
		certificatesv1.KubeAPIServerClientSignerName, &o.duration, usages, key)
	if err != nil {
		return fmt.Errorf("requesting a certificate: %w", err)
	}
	o.log.Info("waiting for the certificate to be issued", "csr", name)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	chain, err := csr.WaitForCertificate(ctx, o.server.client, name, uid)
	if err != nil {
		return fmt.Errorf("waiting for certificate request %s: %w", name, err)
	}
	dated := &pair{files: current.files, replaced: func() {},
		path: o.certDir + overlayStore + o.Host.System.Now().UTC().Format(time.DateOnly+"-15-04-05") + ".pem"}
	return errors.Join(dated.update(chain, keyPEM), current.update(chain, keyPEM))
}
