package policy

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxGrace is how long after its own time a drain waits for grace periods; pods have the rest all the same, on a node
// that is back in service. Whoever makes a pod may give it any.
const maxGrace = time.Hour

// HoldsDrain says that a pod which was told to end has still time to, although a drain that began then is over at the
// deadline. A pod that came to the node since, and was told after the deadline, does not count: those that come back as
// soon as they are evicted would hold the drain for ever.
func HoldsDrain(pod *corev1.Pod, began, deadline, now time.Time) bool {
	if pod.DeletionTimestamp == nil || !now.Before(deadline.Add(maxGrace)) {
		return false
	}
	var grace time.Duration
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	told := pod.DeletionTimestamp.Add(-grace) // the API server counts the grace period from there
	wasThere := !pod.CreationTimestamp.After(began)
	return (wasThere || !told.After(deadline)) && now.Before(told.Add(grace))
}

// HasEnded says of a pod that it was deleted and has ended, and is there for a finalizer only: nothing of it runs, and
// no drain waits for it.
func HasEnded(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil &&
		(pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// DaemonSetOf names the DaemonSet that would start a pod anew on its node; nil for a pod that has none.
// Whoever makes a pod may name anything as its owner, so it counts only where there is one of this UID;
// no object has a name that is no name.
func DaemonSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(pod)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if owner == nil || ended || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() ||
		len(validation.IsDNS1123Subdomain(owner.Name)) > 0 {
		return nil
	}
	return owner
}
