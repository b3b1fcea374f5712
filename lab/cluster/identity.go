package cluster

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// mastersGroup may do anything; the API server asks no authorizer for it.
const mastersGroup = "system:masters"

// Admin returns a config that may do anything, as user lab-admin. Each call
// returns a copy, which the caller may change. It has no client-side rate limit.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// UserConfig returns a config that authenticates with a client certificate as
// any user in any groups: a node (system:node:x in system:nodes), a daemon, an
// impostor. Kubeconfig turns it into a file's content.
func (c *Cluster) UserConfig(user string, groups ...string) (*rest.Config, error) {
	return c.ca.config(c.URL, user, groups...)
}

// ServiceAccountConfig asks the API server for a token of an existing service
// account, valid for the duration (ten minutes at least, by the API's rule), and
// returns a config and a kubeconfig with that token. The account has the rights
// that its bindings give it, thus none of its own.
func (c *Cluster) ServiceAccountConfig(
	ctx context.Context, namespace, name string, duration time.Duration,
) (*rest.Config, []byte, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client: %w", err)
	}
	seconds := int64(duration.Seconds())
	answer, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("requesting a token of service account %s/%s: %w", namespace, name, err)
	}
	config := baseConfig(c.URL, c.CAPEM)
	config.BearerToken = answer.Status.Token
	content, err := Kubeconfig(config)
	if err != nil {
		return nil, nil, err
	}
	return config, content, nil
}

// config issues a client certificate and puts it into a config.
func (a *signingCA) config(url, user string, groups ...string) (*rest.Config, error) {
	identity, err := a.client(user, groups...)
	if err != nil {
		return nil, err
	}
	config := baseConfig(url, a.certPEM)
	config.CertData, config.KeyData = identity.cert, identity.key
	return config, nil
}

// baseConfig is a config without an identity. The API server's own fairness
// limits its clients; a limit here would only slow tests down.
func baseConfig(url string, caPEM []byte) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: caPEM}}
}

// Kubeconfig returns the content of a kubeconfig file that stands alone: server,
// CA and credentials of a config made by this package.
func Kubeconfig(config *rest.Config) ([]byte, error) {
	const name = "lab"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: config.Host, CertificateAuthorityData: config.CAData,
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			Token:                 config.BearerToken,
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return content, nil
}
