package program

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// leaseSeconds is the default of kubelet.
	leaseSeconds = 40
	// leaseJitter spreads the renewals of many kubelets.
	leaseJitter = 0.04
	// leaseRetry is the delay after a failed renewal.
	leaseRetry = time.Second
)

// renewLease renews the lease of the node until ctx ends. Each renewal is one update without a read, unless another
// client writes the lease.
func (k *kubelet) renewLease(ctx context.Context, node types.UID) error {
	var lease *coordinationv1.Lease
	for {
		next, err := k.renewOnce(ctx, lease, node)
		pause := wait.Jitter(k.options.LeaseInterval, leaseJitter)
		if err != nil {
			k.log.Info("failed to update lease", "err", err.Error())
			pause, next = min(pause, leaseRetry), nil
		}
		lease = next
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// renewOnce renews the lease in its last known version. Without a known version, it gets the lease, and creates it if
// necessary.
func (k *kubelet) renewOnce(ctx context.Context, lease *coordinationv1.Lease, node types.UID) (*coordinationv1.Lease,
	error) {
	leases := k.server.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	if lease == nil {
		found, err := leases.Get(ctx, k.node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return leases.Create(ctx, k.stamp(&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: k.node, Namespace: corev1.NamespaceNodeLease},
			}, node), metav1.CreateOptions{})
		}
		if err != nil {
			return nil, err
		}
		lease = found
	}
	return leases.Update(ctx, k.stamp(lease.DeepCopy(), node), metav1.UpdateOptions{})
}

func (k *kubelet) stamp(lease *coordinationv1.Lease, node types.UID) *coordinationv1.Lease {
	seconds := int32(leaseSeconds)
	lease.Spec.HolderIdentity = &k.node
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.RenewTime = &metav1.MicroTime{Time: k.Host.System.Now()}
	lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.node, UID: node}}
	return lease
}
