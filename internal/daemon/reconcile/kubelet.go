package reconcile

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"
	certutil "k8s.io/client-go/util/cert"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// pathCertificate is where kubelet keeps its current client certificate, with its key.
const pathCertificate = contract.DirKubeletPKI + `\kubelet-client-current.pem`

// KubeletHasIdentity reports whether kubelet can present a valid certificate of this node to the API server at the time
// `now`. If it returns false, kubelet must request a certificate with its bootstrap credential. A certificate of
// another node doesn't count, because kubelet would continue to use it after the host was renamed.
func KubeletHasIdentity(files winos.Files, node string, now time.Time) (bool, error) {
	kubeconfig, err := winos.ReadFile(files, contract.PathKubeconfig)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("reading kubelet's kubeconfig: %w", err)
	}
	if !apiclient.IsKubeconfig(kubeconfig) { // it may contain only zeros, because kubelet doesn't flush it to disk
		return false, nil
	}
	content, err := readCertificate(files)
	if err != nil {
		return false, err
	}
	// The key is missing if the disk was full or the power was cut while kubelet wrote the file. kubelet needs the
	// certificate and the key to start.
	pair, err := tls.X509KeyPair(content, content)
	return err == nil && now.Before(pair.Leaf.NotAfter) &&
		pair.Leaf.Subject.CommonName == contract.KubeletUserPrefix+node, nil
}

// readCertificate returns kubelet's certificate with its key, or nil if there is no certificate.
func readCertificate(files winos.Files) ([]byte, error) {
	content, err := winos.ReadFile(files, pathCertificate)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading kubelet's certificate: %w", err)
	}
	return content, nil
}

// ForgetRefusedKubelet removes kubelet's unexpired certificate if the API server refuses it. kubelet then requests a
// new certificate. The result `forgot` reports whether the certificate was removed. If the API server doesn't answer,
// ForgetRefusedKubelet changes nothing and returns no error.
func ForgetRefusedKubelet(ctx context.Context, files winos.Files, node string, now time.Time) (forgot bool, err error) {
	if has, err := KubeletHasIdentity(files, node, now); err != nil || !has {
		return false, err
	}
	log := logr.FromContextOrDiscard(ctx)
	refused, err := apiclient.Refused(ctx, files, contract.PathKubeconfig, pathCertificate)
	if err != nil {
		log.Info("it is unknown whether the API server accepts kubelet's certificate", "detail", err.Error())
		return false, nil
	}
	if !refused {
		return false, nil
	}
	log.Info("the API server refuses kubelet's certificate, so kubelet asks for another")
	return true, ForgetKubeletCertificate(files)
}

// kubelet prefers a certificate in its store, then its kubeconfig, then its bootstrap kubeconfig. If kubelet was
// interrupted while it replaced its certificate, it takes the new one from pathUpdated at its next start (client-go,
// util/certificate/certificate_store.go). If kubelet doesn't rotate its certificate, pathRequestedKey holds the key of
// its pending request (kubernetes, pkg/kubelet/certificate/bootstrap).
const (
	pathUpdated      = contract.DirKubeletPKI + `\kubelet-client-updated.pem`
	pathRequestedKey = contract.DirKubeletPKI + `\kubelet-client.key.tmp`
)

// ForgetKubeletCertificate removes all files that kubelet would use at its start instead of a bootstrap credential. It
// removes the kubeconfig first, so that KubeletHasIdentity returns false from then on. If the process is killed during
// the removal, the next join therefore calls ForgetKubeletCertificate again.
func ForgetKubeletCertificate(files winos.Files) error {
	for _, path := range []string{contract.PathKubeconfig, pathUpdated, pathRequestedKey, pathCertificate} {
		if err := files.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing kubelet's old credentials: %w", err)
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
	content, err := readCertificate(files)
	if err != nil {
		return false, err
	}
	leaf, err := certutil.ParseCertsPEM(content)
	return err == nil && !now.Before(leaf[0].NotAfter), nil
}

// WriteBootstrapCredential writes kubelet's bootstrap credential if kubelet has no identity yet. Otherwise it deletes
// the credential. A second call changes nothing.
func WriteBootstrapCredential(files winos.Files, node string, now time.Time, kubeconfig []byte) error {
	has, err := KubeletHasIdentity(files, node, now)
	if err != nil {
		return err
	}
	if has {
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

// DropBootstrapCredential deletes kubelet's bootstrap credential once kubelet has its own identity.
func DropBootstrapCredential(files winos.Files, node string, now time.Time) (dropped bool, err error) {
	there, err := winos.Exists(files, contract.PathBootstrapKubeconfig)
	if err != nil || !there {
		return false, err
	}
	if has, err := KubeletHasIdentity(files, node, now); err != nil || !has {
		return false, err
	}
	if err = files.Remove(contract.PathBootstrapKubeconfig); err != nil {
		return false, fmt.Errorf("removing kubelet's bootstrap credential: %w", err)
	}
	return true, nil
}
