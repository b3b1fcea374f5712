package policy

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	// OrphanGrace is how long a Node must be without an instance before it is cordoned, and how long a released Node
	// must not be Ready before it is deleted. In this time, a user may be replacing the list and the instances. It
	// begins again when an operator starts.
	OrphanGrace = 5 * time.Minute
	// orphanRetry is how often a released host is checked.
	orphanRetry = time.Minute
)

// Orphan is the decision about a Node without an instance.
type Orphan struct {
	Cordon bool
	// Release is the value of contract.ReleasedAnnotation on the Node; empty for no annotation.
	Release string
	// Remove means: delete the Node, because its host is clean or no longer exists.
	Remove bool
	// After is when to check again, or 0.
	After time.Duration
}

// JudgeOrphan decides about a Node that has no instance. since is when the Node was first seen without an instance.
// released reports that the operator released its host because a user forced its removal, or because its Machine was
// deleted.
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

// isOrphan reports whether a Node without an instance was cordoned as an orphan. At that time, the annotation of
// the instance was deleted. A Node with the annotation may belong to an instance that is being replaced.
func isOrphan(node *corev1.Node) bool {
	return node.Annotations[contract.InstanceAnnotation] == "" &&
		(IsOurs(node) || node.Annotations[contract.CordonedAnnotation] == "true")
}

// IsRegisteredAtEnd reports whether the host of a removed instance can have registered a Node. This is so if the Node
// was created while the instance existed, or soon after its removal: a kubelet in the middle of a join may register
// its Node that late. An older Node belongs to another host.
func IsRegisteredAtEnd(node *corev1.Node, made, removed time.Time) bool {
	registered := node.CreationTimestamp.Time
	return !registered.Before(made) && registered.Sub(removed) <= OrphanGrace
}

// IsOurs reports whether the daemon or the operator has written on a Node. Nodes of other operators don't have these
// annotations.
func IsOurs(node *corev1.Node) bool {
	for _, key := range []string{contract.InstanceAnnotation, contract.BootIDAnnotation,
		contract.CertificateEndAnnotation} {
		if node.Annotations[key] != "" {
			return true
		}
	}
	return false
}
