package bootstrap

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/windows-nodes/wmco/api/bootstrap/v1alpha1"
	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// requestTimeout is the time limit of a request to a workload cluster.
const requestTimeout = 20 * time.Second

// connect returns a client of the workload cluster. The kubeconfig may only contain data: a path or a program in it
// would be of this pod, and whoever may write the Secret must not read the pod's own token.
func (r *Reconciler) connect(ctx context.Context, cluster client.Object) (client.Client, error) {
	secret, name := &corev1.Secret{}, cluster.GetName()+"-kubeconfig"
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: cluster.GetNamespace(), Name: name}, secret); err != nil {
		return nil, fmt.Errorf("reading secret %s/%s: %w", cluster.GetNamespace(), name, err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["value"])
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig in secret %s/%s: %w", cluster.GetNamespace(), name, err)
	}
	if config.ExecProvider != nil || config.AuthProvider != nil || config.BearerTokenFile != "" ||
		config.CAFile != "" || config.CertFile != "" || config.KeyFile != "" {
		return nil, fmt.Errorf("the kubeconfig in secret %s/%s names a file or a program; it must contain the "+
			"certificates and the token themselves", cluster.GetNamespace(), name)
	}
	config.Timeout = requestTimeout
	scheme := runtime.NewScheme()
	if err = clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err = v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	// Without discovery: the kinds are known.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion().WithKind("WindowsInstance"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	return client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// compare reports whether kubelet has the minor version that the Machine asks for. The payload of the workload
// cluster's operator decides it.
func compare(config *bootstrapv1.WindowsConfig, wanted, reported string) {
	w, err := version.ParseGeneric(wanted)
	if err != nil {
		return // the Machine asks for none
	}
	r, err := version.ParseGeneric(reported)
	if err == nil && r.Major() == w.Major() && r.Minor() == w.Minor() {
		report(config, bootstrapv1.ConditionVersionMatches, metav1.ConditionTrue, reasonVersionMatches, "")
		return
	}
	report(config, bootstrapv1.ConditionVersionMatches, metav1.ConditionFalse, reasonVersionDiffers, fmt.Sprintf(
		"the Machine asks for %.32s, and the operator's payload has kubelet %.32s; use an operator with the other "+
			"payload, or change the version of the Machine", wanted, reported))
}
