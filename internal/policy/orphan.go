package policy

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	// OrphanGrace is how long a Node has no instance before it is taken out of service, and how long
	// a released one is not Ready before it is deleted. It covers a list and instances that are being
	// replaced. An operator that starts begins it anew.
	OrphanGrace = 5 * time.Minute
	// orphanRetry is how often a released host is looked at.
	orphanRetry = time.Minute
)

// Orphan is what is to be done about a Node that no instance has.
type Orphan struct {
	// Cordon takes it out of service.
	Cordon bool
	// Release is written on it as contract.ReleasedAnnotation, unless it is empty.
	Release string
	// Remove deletes it: its host is clean, or gone.
	Remove bool
	// After is when to look again, or 0.
	After time.Duration
}

// JudgeOrphan judges a Node that has had no instance since a time. released says that the operator
// let its host go because somebody forced its removal, or because its Machine was gone.
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

// isOrphan says that a Node which no instance has was judged so before, and its mark of an instance taken away. One
// that still has it may belong to an instance that is just being replaced.
func isOrphan(node *corev1.Node) bool {
	return node.Annotations[contract.InstanceAnnotation] == "" &&
		(IsOurs(node) || node.Annotations[contract.CordonedAnnotation] == "true")
}

// IsRegisteredAtEnd says whether a Node is of an age that the host of an instance can have registered it: made with the
// instance there, or so soon after its removal that kubelet was still on its way, in the middle of a join. A Node that
// was there before the instance is another's.
func IsRegisteredAtEnd(node *corev1.Node, made, removed time.Time) bool {
	registered := node.CreationTimestamp.Time
	return !registered.Before(made) && registered.Sub(removed) <= OrphanGrace
}

// IsOurs reports whether our daemon, or the operator, has written on a Node. No other operator's
// nodes have these annotations.
func IsOurs(node *corev1.Node) bool {
	for _, key := range []string{contract.InstanceAnnotation, contract.BootIDAnnotation,
		contract.CertificateEndAnnotation} {
		if node.Annotations[key] != "" {
			return true
		}
	}
	return false
}
