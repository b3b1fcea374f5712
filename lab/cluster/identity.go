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

// mastersGroup has all rights. The API server doesn't call an authorizer for it.
const mastersGroup = "system:masters"

// Admin returns a config of the user lab-admin with all rights. Each call returns a copy that the caller can change.
// The config has no client-side rate limit.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// UserConfig returns a config that authenticates with a client certificate as any user in any groups: a node
// (system:node:x in system:nodes), a daemon, an attacker. Kubeconfig converts the config to the content of a file.
func (c *Cluster) UserConfig(user string, groups ...string) (*rest.Config, error) {
	return c.ca.config(c.URL, user, groups...)
}

// ServiceAccountConfig requests a token for an existing service account, and returns a config and a kubeconfig with the
// token. The API requires a duration of at least ten minutes. The account has only the rights of its bindings.
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

// config issues a client certificate and returns a config with it.
func (a *signingCA) config(url, user string, groups ...string) (*rest.Config, error) {
	identity, err := a.client(user, groups...)
	if err != nil {
		return nil, err
	}
	config := baseConfig(url, a.certPEM)
	config.CertData, config.KeyData = identity.cert, identity.key
	return config, nil
}

// baseConfig returns a config without an identity. It has no client-side rate limit, because API priority and fairness
// limits clients, and an additional limit would only slow down tests.
func baseConfig(url string, caPEM []byte) *rest.Config {
	return &rest.Config{Host: url, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: caPEM}}
}

// Kubeconfig returns the content of a self-contained kubeconfig file with the server, CA and credentials of a config
// from this package.
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
