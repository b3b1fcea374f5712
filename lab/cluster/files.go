package cluster

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// files are the paths of what the components read.
type files struct {
	caCert, caKey                       string
	servingCert, servingKey             string
	kubeletClientCert, kubeletClientKey string
	tokenKey, tokenPublicKey            string
	auditPolicy, auditLog               string // empty without audit
	adminKubeconfig                     string
	controllerManagerKubeconfig         string
}

// writeFiles issues keys and certificates and puts them into the workspace.
// Kubeconfigs follow when the API server's port is known.
func writeFiles(w *workspace, audit bool) (files, *authority, error) {
	ca, err := newAuthority(time.Now())
	if err != nil {
		return files{}, nil, err
	}
	caKey, err := encodePrivateKey(ca.key)
	if err != nil {
		return files{}, nil, err
	}
	serving, err := ca.serving()
	if err != nil {
		return files{}, nil, err
	}
	kubeletClient, err := ca.client("kube-apiserver-kubelet-client", mastersGroup)
	if err != nil {
		return files{}, nil, err
	}
	token, err := newSigningKey()
	if err != nil {
		return files{}, nil, err
	}
	if err := os.Mkdir(w.path("etcd"), 0o700); err != nil {
		return files{}, nil, fmt.Errorf("making etcd's directory: %w", err)
	}
	f := files{}
	contents := []struct {
		path    *string
		name    string
		content []byte
	}{
		{&f.caCert, "ca.crt", ca.certPEM},
		{&f.caKey, "ca.key", caKey},
		{&f.servingCert, "serving.crt", serving.cert},
		{&f.servingKey, "serving.key", serving.key},
		{&f.kubeletClientCert, "kubelet-client.crt", kubeletClient.cert},
		{&f.kubeletClientKey, "kubelet-client.key", kubeletClient.key},
		{&f.tokenKey, "service-account.key", token.key},
		{&f.tokenPublicKey, "service-account.pub", token.cert},
	}
	if audit {
		f.auditLog = w.path("audit.log")
		contents = append(contents, struct {
			path    *string
			name    string
			content []byte
		}{&f.auditPolicy, "audit-policy.yaml", []byte(auditPolicy)})
	}
	for _, file := range contents {
		if *file.path, err = w.write(file.name, file.content); err != nil {
			return files{}, nil, err
		}
	}
	return f, ca, nil
}

// writeKubeconfigs issues the administrator's and the controller manager's
// identities for the API server at url, and returns the administrator's config.
func (f *files) writeKubeconfigs(w *workspace, ca *authority, url string) (*rest.Config, error) {
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
