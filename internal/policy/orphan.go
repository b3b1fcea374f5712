package policy

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	// OrphanGrace is how long a Node must be without an instance before it is cordoned, and how long a released Node
	// must be not Ready before it is deleted. During this time, a user may be replacing the list of hosts and the
	// instances. The time starts again when an operator starts.
	OrphanGrace = 5 * time.Minute
	// orphanRetry is how often the operator checks the Node of a released host.
	orphanRetry = time.Minute
)

// Orphan is the decision about a Node without an instance.
type Orphan struct {
	Cordon bool
	// Release is the Node's intended contract.ReleasedAnnotation, or empty if it should not have the annotation.
	Release string
	// Remove means: delete the Node, because its host is clean or no longer exists.
	Remove bool
	// The field After is the time until the next check, or 0 if none is needed.
	After time.Duration
}

// JudgeOrphan decides about a Node that has no instance. The operator first saw the Node without an instance at the
// time `since`. If `released` is true, the operator released the Node's host, because a user forced the removal or
// because the Machine was deleted.
func JudgeOrphan(node *corev1.Node, released bool, since, now time.Time) Orphan {
	if left := OrphanGrace - now.Sub(since); left > 0 {
		return Orphan{After: left}
	}
	if !released {
		return Orphan{Cordon: true}
	}
	orphan := Orphan{Cordon: true, Release: node.Annotations[contract.CertificateEndAnnotation], After: orphanRetry}
	if c := ReadyCondition(node); c != nil && c.Status != corev1.ConditionTrue &&
		now.Sub(c.LastTransitionTime.Time) >= OrphanGrace {
		return Orphan{Remove: true}
	}
	return orphan
}

// isOrphan reports whether the operator cordoned a Node because it has no instance. A Node that still has
// contract.InstanceAnnotation doesn't count, because a user may be replacing its instance.
func isOrphan(node *corev1.Node) bool {
	return node.Annotations[contract.InstanceAnnotation] == "" &&
		(IsOurs(node) || node.Annotations[contract.CordonedAnnotation] == "true")
}

// IsRegisteredAtEnd reports whether the host of a removed instance may have registered this Node. It returns true if
// the Node was created while the instance existed, or soon after the instance's removal: if the removal interrupted a
// join, kubelet may register its Node that late. An older Node belongs to another host.
func IsRegisteredAtEnd(node *corev1.Node, made, removed time.Time) bool {
	registered := node.CreationTimestamp.Time
	return !registered.Before(made) && registered.Sub(removed) <= OrphanGrace
}

// IsOurs reports whether a Node has an annotation that the daemon or the operator writes. Nodes of other operators
// don't have these annotations.
func IsOurs(node *corev1.Node) bool {
	for _, key := range []string{contract.InstanceAnnotation, contract.BootIDAnnotation,
		contract.CertificateEndAnnotation} {
		if node.Annotations[key] != "" {
			return true
		}
	}
	return false
}
