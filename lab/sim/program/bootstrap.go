package program

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	// serverTimeout and approvalTimeout are how long kubelet waits for the API server, and for
	// its certificate, before it gives up and leaves it to the service manager to start it again.
	serverTimeout   = time.Minute
	approvalTimeout = time.Hour
	// pendingKey keeps the key of a request that is under way, or has come to nothing, so that a kubelet that
	// starts again goes on with the same request.
	pendingKey = `\kubelet-client.key.tmp`
	clientPair = `\kubelet-client-current.pem`
	serverPair = `\kubelet-server-current.pem`
)

// subject is what kubelets are called.
func (k *kubelet) subject() pkix.Name {
	return pkix.Name{CommonName: contract.KubeletUserPrefix + k.node, Organization: []string{contract.KubeletGroup}}
}

// bootstrap makes sure that there is a kubeconfig with a valid client certificate: it does nothing
// if there is, and otherwise asks for a certificate with the credentials of the bootstrap
// kubeconfig.
func (k *kubelet) bootstrap(ctx context.Context) error {
	if k.hasValidIdentity() {
		return nil
	}
	config, err := loadKubeconfig(k.Host.Files, k.flags.bootstrapKubeconfig)
	if err != nil {
		return fmt.Errorf("bootstrapping: %w", err)
	}
	server, err := connect(config, "kubelet", k.Host.System.Now, nil)
	if err != nil {
		return fmt.Errorf("bootstrapping: %w", err)
	}
	defer server.close()
	if err := waitForServer(ctx, server.client, serverTimeout); err != nil {
		return fmt.Errorf("bootstrapping: %w", err)
	}
	if err := k.Host.Files.MkdirAll(k.flags.certDir, winos.AccessAdministrators); err != nil {
		return fmt.Errorf("making the directory of certificates: %w", err)
	}
	key, keyPEM, err := k.pendingKey()
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	subject := k.subject()
	request, err := cert.MakeCSR(key, &subject, nil, nil)
	if err != nil {
		return fmt.Errorf("making a certificate request: %w", err)
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	name, uid, err := csr.RequestCertificateWithContext(ctx, server.client, request, requestName(key, subject),
		certificatesv1.KubeAPIServerClientKubeletSignerName, nil, usages, key)
	if err != nil {
		return fmt.Errorf("requesting a client certificate: %w", err)
	}
	k.log.Info("waiting for client certificate to be issued", "csr", name)
	waiting, cancel := context.WithTimeout(ctx, approvalTimeout)
	defer cancel()
	chain, err := csr.WaitForCertificate(waiting, server.client, name, uid)
	if err != nil {
		return fmt.Errorf("waiting for client certificate request %s: %w", name, err)
	}
	if err := k.identity.update(chain, keyPEM); err != nil {
		return err
	}
	if err := k.writeKubeconfig(config); err != nil {
		return fmt.Errorf("writing the kubeconfig: %w", err)
	}
	k.log.Info("got client certificate", "csr", name)
	return k.Host.Files.Remove(k.flags.certDir + pendingKey)
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

func (k *kubelet) pendingKey() (crypto.Signer, []byte, error) {
	path := k.flags.certDir + pendingKey
	content, err := winos.ReadFile(k.Host.Files, path)
	if errors.Is(err, fs.ErrNotExist) {
		if content, err = keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
			return nil, nil, err
		}
		err = winos.WriteFile(k.Host.Files, path, strings.NewReader(string(content)), winos.AccessAdministrators)
	}
	if err != nil {
		return nil, nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(content)
	if err != nil {
		return nil, nil, err
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("the key at %s can't sign", path)
	}
	return signer, content, nil
}

// requestName is the same for the same key and subject.
func requestName(key crypto.Signer, subject pkix.Name) string {
	der, _ := x509.MarshalPKIXPublicKey(key.Public())
	digest := sha256.Sum256(append(der, subject.String()...))
	return "node-csr-" + hex.EncodeToString(digest[:])
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
