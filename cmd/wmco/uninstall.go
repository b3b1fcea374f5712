package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	uninstallTimeout = time.Minute
	uninstallNamed   = 10
)

// uninstallOptions are the flags of uninstall-check. If kubeconfig is empty, kubectl's kubeconfig is used. `advice` is
// printed if the check fails.
type uninstallOptions struct {
	kubeconfig, namespace, advice string
}

// uninstallCheck prints which cluster it checks, and returns an error if the operator must not be removed yet.
func uninstallCheck(ctx context.Context, out io.Writer, o uninstallOptions) error {
	at, err := kubectlsCluster(o.kubeconfig)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "asking %s for WindowsInstances in namespace %s\n", at.Host, o.namespace)
	scheme := runtime.NewScheme()
	if err = v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(at, client.Options{Scheme: scheme})
	if err == nil {
		err = checkUninstall(ctx, c, o.namespace, out)
	}
	if err != nil && o.advice != "" {
		return fmt.Errorf("%w\n%s", err, o.advice)
	}
	return err
}

// kubectlsCluster returns the cluster that kubectl would use: the cluster in the kubeconfig, or this pod's cluster if
// there is no kubeconfig. Don't use config.GetConfig of controller-runtime, because it prefers this pod's cluster to
// ~/.kube/config.
func kubectlsCluster(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	at, err := config.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	return at, nil
}

// checkUninstall returns an error with the names of the WindowsInstances, if the namespace still contains any. Without
// the operator, nothing would remove its services from the hosts, or its finalizers from the WindowsInstances.
func checkUninstall(ctx context.Context, c client.Reader, namespace string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, uninstallTimeout)
	defer cancel()
	list := &v1alpha1.WindowsInstanceList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); meta.IsNoMatchError(err) {
		_, err = fmt.Fprintln(out, "the cluster has no WindowsInstances: their CRD is not there")
		return err
	} else if err != nil {
		return fmt.Errorf("listing WindowsInstances: %w", err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	var names []string
	machines := 0
	for _, i := range list.Items {
		if i.Spec.Source != nil && i.Spec.Source.Kind == v1alpha1.SourceMachine {
			machines++
		}
		names = append(names, i.Name)
	}
	fix := "remove their entries from the ConfigMap windows-instances, and WindowsInstances that you made yourself"
	if machines > 0 {
		fix += fmt.Sprintf("; for %d of them, scale the MachineSet to 0", machines)
	}
	return fmt.Errorf("%d WindowsInstances in namespace %s still need the operator (%s): %s, and wait until "+
		"`kubectl get windowsinstances -n %s` shows none", len(list.Items), namespace,
		contract.Few(names, uninstallNamed, ", "), fix, namespace)
}
