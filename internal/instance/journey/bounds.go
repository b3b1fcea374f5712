package journey

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Bounds are the user's, for a node that goes to another revision or through a reboot.
type Bounds struct {
	// Drain is how long pods are given; Settle how long a node must be Ready; Verify how long it may
	// take from the switch on; Unavailable how long it must be not Ready to count as out of
	// service.
	Drain, Settle, Verify, Unavailable time.Duration
}

// DefaultBounds hold where the user sets none; they are the CRD's defaults, too.
func DefaultBounds() Bounds {
	return Bounds{Drain: v1alpha1.DefaultDrainTimeout, Settle: v1alpha1.DefaultSettleTime,
		Verify: v1alpha1.DefaultVerifyTimeout, Unavailable: v1alpha1.DefaultUnavailableAfter}
}

// CurrentBounds are the user's, or the defaults.
func (p *Parts) CurrentBounds(ctx context.Context) (Bounds, error) {
	if p.Bounds == nil {
		return DefaultBounds(), nil
	}
	return p.Bounds(ctx)
}

// Left is how much time is left to what daemons do and may take so long; none when it is late.
func (o *Options) Left(since policy.Since, limit time.Duration) time.Duration {
	return since.Left(limit, o.DaemonTimeout/2, o.Now())
}

// InService reads an instance's Node past the cache, nil when there is none, and says whether work on its host disrupts
// anybody there, and so needs a place in the rollout budget.
func (p *Parts) InService(ctx context.Context, instance *v1alpha1.WindowsInstance) (node *corev1.Node, is bool,
	err error) {
	bounds, err := p.CurrentBounds(ctx)
	if err != nil {
		return nil, false, err
	}
	node, err = p.Nodes.OursLive(ctx, instance)
	return node, node != nil && !p.IsOut(node, bounds), err
}

// HasJoined says that a host has joined, and is not being removed.
func HasJoined(status *v1alpha1.WindowsInstanceStatus) bool {
	return status.JoinedTime != nil && status.Phase != v1alpha1.PhaseRemoving
}

// IsFirstJoin says that a host has yet to join, and that its Node, if there is one, came of that: it
// serves nobody yet. One that was there before may serve: the status of its host may have been lost.
func IsFirstJoin(status *v1alpha1.WindowsInstanceStatus) bool {
	return status.JoinedTime == nil && status.NodeExpected
}

// IsOut says that nobody is disrupted at a node any more: it has not been Ready for long.
func (p *Parts) IsOut(node *corev1.Node, bounds Bounds) bool {
	return p.Observed.NotReady(node).IsOut(bounds.Unavailable, p.Now())
}
