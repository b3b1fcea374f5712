package reconcile

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// pathCertificate is where kubelet keeps its present client certificate, with its key.
const pathCertificate = contract.DirKubeletPKI + `\kubelet-client-current.pem`

// KubeletIdentity is what kubelet has to show to the API server.
type KubeletIdentity int

// Identities.
const (
	// NoIdentity means no kubeconfig, no client certificate, or an expired one: kubelet asks for
	// one with its bootstrap credential.
	NoIdentity KubeletIdentity = iota
	// Own means a valid certificate of this node.
	OwnIdentity
	// Foreign means a valid certificate of another node: the host was renamed. kubelet would go on
	// using it.
	ForeignIdentity
)

// KubeletIdentityOf finds kubelet's identity for a node at now.
func KubeletIdentityOf(files winos.Files, node string, now time.Time) (KubeletIdentity, error) {
	there, err := winos.Exists(files, contract.PathKubeconfig)
	if err != nil || !there {
		return NoIdentity, err
	}
	content, err := winos.ReadFile(files, pathCertificate)
	if errors.Is(err, fs.ErrNotExist) {
		return NoIdentity, nil
	}
	if err != nil {
		return NoIdentity, fmt.Errorf("reading kubelet's certificate: %w", err)
	}
	leaf := certificate(content)
	switch {
	case leaf == nil || !now.Before(leaf.NotAfter):
		return NoIdentity, nil
	case !isPair(content): // a full disk, or a power cut while kubelet wrote it
		return NoIdentity, nil
	case leaf.Subject.CommonName != contract.KubeletUserPrefix+node:
		return ForeignIdentity, nil
	}
	return OwnIdentity, nil
}

// isPair reports whether PEM text has a certificate and its key. kubelet starts with nothing less.
func isPair(content []byte) bool {
	_, err := tls.X509KeyPair(content, content)
	return err == nil
}

// ForgetRefusedKubelet has kubelet ask for another certificate if the API server refuses the
// present one, which is valid by date. Without an answer of the API server it changes nothing. It is
// also true when an earlier call did it that was killed, maybe before kubelet was started again.
func ForgetRefusedKubelet(ctx context.Context, files winos.Files, node string, now time.Time) (forgot bool, err error) {
	config, err := winos.Exists(files, contract.PathKubeconfig)
	if err != nil || !config {
		certificate, cerr := winos.Exists(files, pathCertificate)
		return !config && certificate, errors.Join(err, cerr)
	}
	identity, err := KubeletIdentityOf(files, node, now)
	if err != nil || identity != OwnIdentity {
		return false, err
	}
	log := logr.FromContextOrDiscard(ctx)
	refused, err := apiclient.Refused(ctx, files, contract.PathKubeconfig, pathCertificate)
	if err != nil {
		log.Info("it is not known whether kubelet's certificate is accepted", "detail", err.Error())
		return false, nil
	}
	if !refused {
		return false, nil
	}
	log.Info("the API server refuses kubelet's certificate, so kubelet asks for another")
	if err = files.Remove(contract.PathKubeconfig); err != nil {
		return false, fmt.Errorf("removing kubelet's kubeconfig: %w", err)
	}
	return true, nil
}

// pathRequestedKey is the key with which kubelet asks for its first certificate. It stays until kubelet has
// that certificate, and names the request: kubernetes, pkg/kubelet/certificate/bootstrap.
const pathRequestedKey = contract.DirKubeletPKI + `\kubelet-client.key.tmp`

// ForgetKubeletRequest has a kubelet without a certificate make another request for one when it starts, if
// kubeconfig is another than the bootstrap kubeconfig that is there: the API server knows a request by the
// credential with which it was made first, and that one may count no more. With the same credential the request
// stays, because a credential is good for one key. waits is true for a kubelet without a certificate.
func ForgetKubeletRequest(files winos.Files, node string, now time.Time, kubeconfig []byte) (waits bool, err error) {
	identity, err := KubeletIdentityOf(files, node, now)
	if err != nil || identity == OwnIdentity {
		return false, err
	}
	present, err := winos.ReadFile(files, contract.PathBootstrapKubeconfig)
	if err == nil && bytes.Equal(present, kubeconfig) {
		return true, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading kubelet's bootstrap credential: %w", err)
	}
	if err = files.Remove(pathRequestedKey); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("removing the key of kubelet's request: %w", err)
	}
	return true, nil
}

// KubeletExpired says whether kubelet has a certificate that is no longer valid. A running kubelet
// with such a one does not look for another credential.
func KubeletExpired(files winos.Files, now time.Time) (bool, error) {
	content, err := winos.ReadFile(files, pathCertificate)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading kubelet's certificate: %w", err)
	}
	leaf := certificate(content)
	return leaf != nil && !now.Before(leaf.NotAfter), nil
}

func certificate(content []byte) *x509.Certificate {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if leaf, err := x509.ParseCertificate(block.Bytes); err == nil {
			return leaf
		}
		return nil
	}
	return nil
}

// WriteBootstrapCredential writes kubelet's bootstrap credential if kubelet has no identity of its
// own, and deletes it otherwise. Repeating it changes nothing.
func WriteBootstrapCredential(files winos.Files, node string, now time.Time, kubeconfig []byte) error {
	identity, err := KubeletIdentityOf(files, node, now)
	if err != nil {
		return err
	}
	if identity == OwnIdentity {
		_, err = DropBootstrapCredential(files, node, now)
		return err
	}
	if len(kubeconfig) == 0 {
		return nil
	}
	err = winos.WriteFile(files, contract.PathBootstrapKubeconfig, bytes.NewReader(kubeconfig),
		winos.AccessAdministrators)
	if err != nil {
		return fmt.Errorf("writing kubelet's bootstrap credential: %w", err)
	}
	if identity == ForeignIdentity {
		// Without a kubeconfig, kubelet asks for a certificate of its present name.
		if err = files.Remove(contract.PathKubeconfig); err != nil {
			return fmt.Errorf("removing the kubeconfig of another node: %w", err)
		}
	}
	return nil
}

// DropBootstrapCredential deletes kubelet's bootstrap credential once kubelet has an identity of
// its own. Repeating it changes nothing.
func DropBootstrapCredential(files winos.Files, node string, now time.Time) (dropped bool, err error) {
	there, err := winos.Exists(files, contract.PathBootstrapKubeconfig)
	if err != nil || !there {
		return false, err
	}
	if identity, err := KubeletIdentityOf(files, node, now); err != nil || identity != OwnIdentity {
		return false, err
	}
	if err = files.Remove(contract.PathBootstrapKubeconfig); err != nil {
		return false, fmt.Errorf("removing kubelet's bootstrap credential: %w", err)
	}
	return true, nil
}
