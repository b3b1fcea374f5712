package program

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Names of the files with kubelet's certificates, in the directory of the flag --cert-dir.
const (
	clientPair = `\kubelet-client-current.pem`
	serverPair = `\kubelet-server-current.pem`
)

// subject returns the subject of kubelet's certificates.
func (k *kubelet) subject() pkix.Name {
	return pkix.Name{CommonName: contract.KubeletUserPrefix + k.node, Organization: []string{contract.KubeletGroup}}
}

// bootstrap makes sure that there is a kubeconfig with a client certificate. It does the same as a kubelet that rotates
// its certificates (kubernetes, pkg/kubelet/certificate/bootstrap; client-go, util/certificate). If there is a
// kubeconfig with an unexpired certificate, bootstrap changes nothing. Otherwise it first writes the kubeconfig with
// the path of the certificate, and then requests the certificate. If an unexpired certificate is stored, bootstrap
// requests none, even if the API server refuses the stored certificate. The key of a request is only in memory, so a
// kubelet that restarts sends a request with a new key.
func (k *kubelet) bootstrap(ctx context.Context) error {
	if k.hasValidIdentity() {
		return nil
	}
	config, err := loadKubeconfig(k.Host.Files, k.flags.bootstrapKubeconfig)
	if err != nil {
		return fmt.Errorf("bootstrapping: %w", err)
	}
	if err = k.Host.Files.MkdirAll(k.flags.certDir, winos.AccessAdministrators); err != nil {
		return fmt.Errorf("making the directory of certificates: %w", err)
	}
	if err = k.writeKubeconfig(config); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	stored, err := k.identity.load()
	if err != nil {
		return fmt.Errorf("bootstrapping: the stored certificate: %w", err)
	}
	if stored != nil && k.Host.System.Now().Before(stored.Leaf.NotAfter) {
		return nil
	}
	server, err := connect(config, "kubelet", k.Host.System.Now, nil)
	if err != nil {
		return fmt.Errorf("bootstrapping: %w", err)
	}
	defer server.close()
	// bootstrap fails if the API server refuses the request for too long. It waits if the request isn't signed, or if
	// the API server doesn't answer.
	began := time.Now()
	if err = k.obtainCertificate(ctx, server.client, k.clientCertificate(), func(err error) bool {
		refused := apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
		return refused && time.Since(began) > certificateLimit
	}); err != nil {
		return fmt.Errorf("getting a client certificate: %w", err)
	}
	k.log.Info("got client certificate")
	return nil
}

// hasValidIdentity reports whether kubelet has a kubeconfig whose certificate hasn't expired.
func (k *kubelet) hasValidIdentity() bool {
	config, err := loadKubeconfig(k.Host.Files, k.flags.kubeconfig)
	if err != nil || len(config.CertData) == 0 {
		return false
	}
	certificates, err := cert.ParseCertsPEM(config.CertData)
	return err == nil && k.Host.System.Now().Before(certificates[0].NotAfter)
}

// writeKubeconfig writes a kubeconfig. Like kubelet, it writes the path of the certificate and not its content, because
// the content changes.
func (k *kubelet) writeKubeconfig(from *rest.Config) error {
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"default-cluster": {
			Server: from.Host, InsecureSkipTLSVerify: from.Insecure, CertificateAuthorityData: from.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"default-auth": {
			ClientCertificate: k.identity.path, ClientKey: k.identity.path,
		}},
		Contexts: map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster",
			AuthInfo: "default-auth", Namespace: "default"}},
		CurrentContext: "default-context",
	})
	if err != nil {
		return err
	}
	return winos.WriteFile(k.Host.Files, k.flags.kubeconfig, strings.NewReader(string(content)),
		winos.AccessAdministrators)
}
