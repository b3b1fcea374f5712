package bootstrap

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/response"
)

const requestTimeout = 20 * time.Second

// maxResponse is the maximum size of a response of a workload cluster in bytes. An object has at most 1.5 MiB in etcd.
const maxResponse = 8 << 20

// connect returns a client of a workload cluster. It refuses a kubeconfig that names a file or a program. The client
// would read the file or run the program in the provider's pod, so a user who can write the Secret could steal the
// pod's token.
func connect(ctx context.Context, management client.Client, cluster client.Object) (client.Client, error) {
	secret, name := &corev1.Secret{}, cluster.GetName()+"-kubeconfig"
	if err := management.Get(ctx, client.ObjectKey{Namespace: cluster.GetNamespace(), Name: name}, secret); err != nil {
		return nil, fmt.Errorf("reading secret %s/%s: %w", cluster.GetNamespace(), name, err)
	}
	kubeconfig, err := clientcmd.Load(secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in secret %s/%s: %w", cluster.GetNamespace(), name, err)
	}
	if namesFile(kubeconfig) { // refuse it before the client reads the file
		return nil, fmt.Errorf("the kubeconfig in secret %s/%s names a file or a program; put the "+
			"certificates or the token into the kubeconfig itself", cluster.GetNamespace(), name)
	}
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in secret %s/%s: %w", cluster.GetNamespace(), name, err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return response.Transport(next, maxResponse) })
	config.Timeout = requestTimeout
	// List the kinds here, so that the client needs no requests to discover them.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion().WithKind("WindowsInstance"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return client.New(config, client.Options{Scheme: management.Scheme(), Mapper: mapper})
}

// namesFile reports whether a kubeconfig names a file or a program.
func namesFile(kubeconfig *clientcmdapi.Config) bool {
	for _, user := range kubeconfig.AuthInfos {
		if user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "" || user.Exec != nil ||
			user.AuthProvider != nil {
			return true
		}
	}
	for _, cluster := range kubeconfig.Clusters {
		if cluster.CertificateAuthority != "" {
			return true
		}
	}
	return false
}
