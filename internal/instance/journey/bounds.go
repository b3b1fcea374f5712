package journey

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Bounds are the user's limits for an upgrade or a reboot of a node.
type Bounds struct {
	// Drain limits a drain. Verify limits the time from the request until the node is healthy. Then the node must stay
	// Ready for Settle. Unavailable is how long a node must be not Ready to count as out of service.
	Drain, Settle, Verify, Unavailable time.Duration
}

// DefaultBounds returns the limits that apply if the user sets none, as in the CRD.
func DefaultBounds() Bounds {
	return Bounds{Drain: v1alpha1.DefaultDrainTimeout, Settle: v1alpha1.DefaultSettleTime,
		Verify: v1alpha1.DefaultVerifyTimeout, Unavailable: v1alpha1.DefaultUnavailableAfter}
}

// CurrentBounds returns the current limits.
func (p *Parts) CurrentBounds(ctx context.Context) (Bounds, error) {
	if p.Bounds == nil {
		return DefaultBounds(), nil
	}
	return p.Bounds(ctx)
}

// Left returns how much of a time limit is left. The work began at `since`. If the time is over, the result is 0 or
// less.
func (o *Options) Left(since policy.Since, limit time.Duration) time.Duration {
	return since.Left(limit, o.DaemonTimeout/2, o.Now())
}

// InService reads an instance's Node from the API server. If the instance has no Node, node is nil. If `is` is true,
// the node is in service: work on the host would disrupt pods and needs a slot in the rollout budget.
func (p *Parts) InService(ctx context.Context, instance *v1alpha1.WindowsInstance) (node *corev1.Node, is bool,
	err error) {
	bounds, err := p.CurrentBounds(ctx)
	if err != nil {
		return nil, false, err
	}
	node, err = p.Nodes.OursLive(ctx, instance)
	return node, node != nil && !p.IsOut(node, bounds), err
}

// HasJoined reports whether a host has joined and is not being removed.
func HasJoined(status *v1alpha1.WindowsInstanceStatus) bool {
	return status.Joined() && status.Phase != v1alpha1.PhaseRemoving
}

// IsFirstJoin reports whether a host has not joined yet, and its Node has no pods because this join registered or
// drained the Node. node may be nil. A Node that existed before the join may have pods, because the status of its host
// may have been lost.
func IsFirstJoin(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) bool {
	return !status.Joined() && (node == nil || string(node.UID) == status.NodeUID || awaitsNode(status))
}

// awaitsNode reports whether there was no Node with the host's name when the host got its credential. In this case, the
// host registers the next Node with this name.
func awaitsNode(status *v1alpha1.WindowsInstanceStatus) bool {
	return len(status.BootstrapCredentials) > 0 && status.NodeUID == ""
}

// HasStoppedDaemon reports whether a join has stopped the daemon or is about to, and has not restarted the daemon.
func HasStoppedDaemon(status *v1alpha1.WindowsInstanceStatus) bool {
	return len(status.BootstrapCredentials) > 0 && status.Phase != v1alpha1.PhaseConfirming
}

// IsOut reports whether a node has not been Ready for so long that it counts as out of service.
func (p *Parts) IsOut(node *corev1.Node, bounds Bounds) bool {
	return p.Observed.NotReady(node).IsOut(bounds.Unavailable, p.Now())
}
