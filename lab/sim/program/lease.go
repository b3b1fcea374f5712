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
	// leaseSeconds is the default duration of a lease in kubelet.
	leaseSeconds = 40
	// leaseJitter varies the interval of renewals, so that many kubelets don't renew their leases at the same time.
	leaseJitter = 0.04
	// leaseRetry is the delay after a failed renewal.
	leaseRetry = time.Second
)

// renewLease renews the lease of the node until ctx ends. A renewal is a single update without a read. After a failed
// renewal, renewLease reads the lease first.
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

// renewOnce renews the lease. It sends an update of the version that it knows. If it knows no version, it reads the
// lease first, and creates it if it doesn't exist.
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
