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

// Where kubelet keeps its certificates, in the directory of its flag.
const (
	clientPair = `\kubelet-client-current.pem`
	serverPair = `\kubelet-server-current.pem`
)

// subject is what kubelets are called.
func (k *kubelet) subject() pkix.Name {
	return pkix.Name{CommonName: contract.KubeletUserPrefix + k.node, Organization: []string{contract.KubeletGroup}}
}

// bootstrap makes sure that there is a kubeconfig with a client certificate, as a kubelet does that rotates it
// (kubernetes, pkg/kubelet/certificate/bootstrap; client-go, util/certificate). A valid identity is left alone. The
// kubeconfig comes first, and names where the certificate will be. One that lies there counts before the bootstrap
// credential, whoever refuses it. The key of a request is in memory only: a kubelet that starts again asks with
// another.
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
	// It gives up when the API server has refused to take a request for too long. For one that is not signed, and for a
	// server that does not answer, it waits.
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

// hasValidIdentity says whether the kubeconfig exists and its certificate has not expired.
func (k *kubelet) hasValidIdentity() bool {
	config, err := loadKubeconfig(k.Host.Files, k.flags.kubeconfig)
	if err != nil || len(config.CertData) == 0 {
		return false
	}
	certificates, err := cert.ParseCertsPEM(config.CertData)
	return err == nil && k.Host.System.Now().Before(certificates[0].NotAfter)
}

// writeKubeconfig writes the kubeconfig as kubelet does: with the place of its certificate, not the
// certificate, which will change.
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
