package payloadserver

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Nodes answers questions about the nodes of the operator's WindowsInstances.
type Nodes struct {
	// Reader reads WindowsInstances from a cache.
	Reader    client.Reader
	Namespace string
}

// Known reports whether a WindowsInstance has this node. Use it for Options.Known.
func (n Nodes) Known(ctx context.Context, node string) (bool, error) {
	return n.any(ctx, func(i *v1alpha1.WindowsInstance) bool { return node != "" && i.Status.NodeName == node })
}

// Guests reports whether any host is joining by itself. Use it for Options.Guests.
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
