package payloadserver

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Nodes are the nodes of the operator's instances.
type Nodes struct {
	// Reader reads from a cache.
	Reader client.Reader
	// Namespace of the instances.
	Namespace string
}

// Known is for Options.Known. It reports whether an instance has this node.
func (n Nodes) Known(ctx context.Context, node string) (bool, error) {
	return n.any(ctx, func(i *v1alpha1.WindowsInstance) bool { return node != "" && i.Status.NodeName == node })
}

// Guests is for Options.Guests. It reports whether any host joins by itself.
func (n Nodes) Guests(ctx context.Context) (bool, error) {
	return n.any(ctx, func(i *v1alpha1.WindowsInstance) bool {
		return i.Spec.ByItself != nil && i.Status.Phase != v1alpha1.PhaseReady
	})
}

func (n Nodes) any(ctx context.Context, is func(*v1alpha1.WindowsInstance) bool) (bool, error) {
	list := &v1alpha1.WindowsInstanceList{}
	if err := n.Reader.List(ctx, list, client.InNamespace(n.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing instances: %w", err)
	}
	for i := range list.Items {
		if is(&list.Items[i]) {
			return true, nil
		}
	}
	return false, nil
}
