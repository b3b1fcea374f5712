package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

const (
	// uninstallTimeout bounds the look at the cluster.
	uninstallTimeout = time.Minute
	// uninstallNamed is how many of the instances are named.
	uninstallNamed = 10
)

// checkUninstall fails while there are WindowsInstances in the namespace, and names them: their hosts
// run services that only the operator removes, and their finalizers would keep them for ever.
func checkUninstall(ctx context.Context, c client.Reader, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, uninstallTimeout)
	defer cancel()
	list := &v1alpha1.WindowsInstanceList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); meta.IsNoMatchError(err) {
		return nil // the CRDs are gone already
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
		if len(names) < uninstallNamed {
			names = append(names, i.Name)
		}
	}
	if more := len(list.Items) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	fix := "remove their entries from the ConfigMap windows-instances, and WindowsInstances that you made yourself"
	if machines > 0 {
		fix += fmt.Sprintf("; %d are of Machines: scale their MachineSets to 0", machines)
	}
	return fmt.Errorf("%d WindowsInstances in namespace %s still need the operator (%s): %s, and wait until "+
		"`kubectl get windowsinstances -n %s` shows none", len(list.Items), namespace, strings.Join(names, ", "), fix,
		namespace)
}

// clusterReader reads the cluster that the process runs in, or that its kubeconfig names.
func clusterReader() (client.Reader, error) {
	restConfig, err := config.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	scheme := runtime.NewScheme()
	if err = v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(restConfig, client.Options{Scheme: scheme})
}
