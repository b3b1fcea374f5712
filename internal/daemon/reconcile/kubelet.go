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

// pathCertificate is where kubelet keeps its current client certificate, with its key.
const pathCertificate = contract.DirKubeletPKI + `\kubelet-client-current.pem`

// KubeletIdentity is the identity that kubelet can present to the API server.
type KubeletIdentity int

// Identities.
const (
	// NoIdentity means that kubelet has no usable kubeconfig or client certificate, or an expired one. kubelet requests
	// a certificate with its bootstrap credential.
	NoIdentity KubeletIdentity = iota
	// OwnIdentity means a valid certificate of this node.
	OwnIdentity
	// ForeignIdentity means a valid certificate of another node, because the host was renamed. kubelet would continue
	// to use it.
	ForeignIdentity
)

// KubeletIdentityOf returns kubelet's identity for a node at the time now.
func KubeletIdentityOf(files winos.Files, node string, now time.Time) (KubeletIdentity, error) {
	kubeconfig, err := winos.ReadFile(files, contract.PathKubeconfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return NoIdentity, fmt.Errorf("reading kubelet's kubeconfig: %w", err)
	}
	if !apiclient.IsKubeconfig(kubeconfig) { // it may hold zeros: kubelet writes it without a flush
		return NoIdentity, nil
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

// isPair reports whether PEM text has a certificate and its key. kubelet needs both to start.
func isPair(content []byte) bool {
	_, err := tls.X509KeyPair(content, content)
	return err == nil
}

// ForgetRefusedKubelet removes kubelet's certificate if the API server refuses it although its date is valid. kubelet
// then requests another. If the API server doesn't answer, ForgetRefusedKubelet changes nothing.
func ForgetRefusedKubelet(ctx context.Context, files winos.Files, node string, now time.Time) (forgot bool, err error) {
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
	return true, ForgetKubeletCertificate(files)
}

// kubelet prefers a certificate in its store, then its kubeconfig, then its bootstrap kubeconfig. From pathUpdated,
// kubelet completes a store that was written only partly (client-go, util/certificate/certificate_store.go).
// pathRequestedKey names the request of a kubelet that does not rotate its certificate (kubernetes,
// pkg/kubelet/certificate/bootstrap).
const (
	pathUpdated      = contract.DirKubeletPKI + `\kubelet-client-updated.pem`
	pathRequestedKey = contract.DirKubeletPKI + `\kubelet-client.key.tmp`
)

// ForgetKubeletCertificate removes all files that kubelet would use at its start instead of a bootstrap credential. It
// removes the kubeconfig first: without it kubelet has no identity, so another call continues if this one is killed.
func ForgetKubeletCertificate(files winos.Files) error {
	for _, path := range []string{contract.PathKubeconfig, pathUpdated, pathRequestedKey, pathCertificate} {
		if err := files.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing what kubelet would show instead of its new credential: %w", err)
		}
	}
	return nil
}

// HasCredential reports whether the host already has exactly this bootstrap kubeconfig.
func HasCredential(files winos.Files, kubeconfig []byte) (bool, error) {
	present, err := winos.ReadFile(files, contract.PathBootstrapKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading kubelet's bootstrap credential: %w", err)
	}
	return bytes.Equal(present, kubeconfig), nil
}

// KubeletExpired reports whether kubelet's certificate has expired. A running kubelet with an expired certificate
// doesn't look for another credential.
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

// WriteBootstrapCredential writes kubelet's bootstrap credential if kubelet has no own identity yet. Otherwise it
// deletes the credential. A second call changes nothing.
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
	return nil
}

// DropBootstrapCredential deletes kubelet's bootstrap credential once kubelet has its own identity. A second call
// changes nothing.
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
