package journey

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/policy"
)

// Settles returns since when a node has been Ready without interruption, and the rest of the settling time. The
// transition time that kubelet reports counts as well, because the operator may not have looked in between.
func (p *Parts) Settles(node *corev1.Node, since *metav1.Time, settle time.Duration) (*metav1.Time, time.Duration) {
	now := p.Now()
	began := now
	if since != nil && since.Time.Before(now) {
		began = since.Time
	}
	if c := policy.ReadyCondition(node); c != nil && c.LastTransitionTime.After(began) &&
		c.LastTransitionTime.Time.Before(now) {
		began = c.LastTransitionTime.Time
	}
	left := settle - now.Sub(began)
	if since != nil && since.Time.Equal(began) {
		return since, left
	}
	// with the precision of the API server, and not too early
	kept := metav1.NewTime(began.Add(time.Second - 1).Truncate(time.Second))
	return &kept, max(left, kept.Sub(now)+settle)
}
