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
	// Drain is how long pods are given; Settle how long a node must be Ready; Proof how long it may
	// take from the switch on; Unavailable how long it must be not Ready to count as out of
	// service.
	Drain, Settle, Proof, Unavailable time.Duration
}

// DefaultBounds hold where the user sets none; they are the CRD's defaults, too.
func DefaultBounds() Bounds {
	return Bounds{Drain: v1alpha1.DefaultDrainTimeout, Settle: v1alpha1.DefaultSettleTime,
		Proof: v1alpha1.DefaultProofTimeout, Unavailable: v1alpha1.DefaultUnavailableAfter}
}

// CurrentBounds are the user's, or the defaults.
func (p *Parts) CurrentBounds(ctx context.Context) (Bounds, error) {
	if p.Bounds == nil {
		return DefaultBounds(), nil
	}
	return p.Bounds(ctx)
}

// IsOut says that nobody is disturbed at a node any more: it has not been Ready for long.
func (p *Parts) IsOut(node *corev1.Node, bounds Bounds) bool {
	ready, _ := NodeReady(node)
	return !ready && policy.IsOut(policy.NotReadySince(node), p.Now(), bounds.Unavailable)
}
