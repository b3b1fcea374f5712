package cluster

import (
	"time"

	"k8s.io/client-go/rest"
)

// files are the paths of the files that components read.
type files struct {
	caCert, caKey                       string
	servingCert, servingKey             string
	kubeletClientCert, kubeletClientKey string
	tokenKey, tokenPublicKey            string
	auditPolicy                         string
	auditLog                            string // empty without audit
	adminKubeconfig                     string
	controllerManagerKubeconfig         string
}

// keyring contains the keys and certificates that are issued once per cluster.
type keyring struct {
	ca                            *signingCA
	caKey                         []byte
	serving, kubeletClient, token pair
}

func newKeyring() (keyring, error) {
	var k keyring
	var err error
	if k.ca, err = newCA(time.Now()); err != nil {
		return keyring{}, err
	}
	if k.caKey, err = encodePrivateKey(k.ca.key); err != nil {
		return keyring{}, err
	}
	if k.serving, err = k.ca.serving(); err != nil {
		return keyring{}, err
	}
	if k.kubeletClient, err = k.ca.client("kube-apiserver-kubelet-client", mastersGroup); err != nil {
		return keyring{}, err
	}
	k.token, err = newSigningKey()
	return k, err
}

// writeFiles writes keys, certificates and the audit policy to the workspace. The kubeconfigs are written later, when
// the port of the API server is known.
func writeFiles(w *workspace, k keyring, audit bool) (files, error) {
	var f files
	contents := []struct {
		path    *string
		name    string
		content []byte
	}{
		{&f.caCert, "ca.crt", k.ca.certPEM},
		{&f.caKey, "ca.key", k.caKey},
		{&f.servingCert, "serving.crt", k.serving.cert},
		{&f.servingKey, "serving.key", k.serving.key},
		{&f.kubeletClientCert, "kubelet-client.crt", k.kubeletClient.cert},
		{&f.kubeletClientKey, "kubelet-client.key", k.kubeletClient.key},
		{&f.tokenKey, "service-account.key", k.token.key},
		{&f.tokenPublicKey, "service-account.pub", k.token.cert},
		{&f.auditPolicy, "audit-policy.yaml", []byte(auditPolicy)},
	}
	for _, file := range contents {
		var err error
		if *file.path, err = w.write(file.name, file.content); err != nil {
			return files{}, err
		}
	}
	if audit {
		f.auditLog = w.path("audit.log")
	}
	return f, nil
}

// writeKubeconfigs issues the identities of the administrator and the controller manager for the API server at url, and
// returns the administrator's config.
func (f *files) writeKubeconfigs(w *workspace, ca *signingCA, url string) (*rest.Config, error) {
	admin, err := ca.config(url, "lab-admin", mastersGroup)
	if err != nil {
		return nil, err
	}
	manager, err := ca.config(url, "system:kube-controller-manager", mastersGroup)
	if err != nil {
		return nil, err
	}
	if f.adminKubeconfig, err = writeKubeconfig(w, "kubeconfig", admin); err != nil {
		return nil, err
	}
	if f.controllerManagerKubeconfig, err = writeKubeconfig(w, "controller-manager.kubeconfig", manager); err != nil {
		return nil, err
	}
	return admin, nil
}

func writeKubeconfig(w *workspace, name string, config *rest.Config) (string, error) {
	content, err := Kubeconfig(config)
	if err != nil {
		return "", err
	}
	return w.write(name, content)
}
