package policy

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxGrace is how much of a pod's grace period a drain waits for; the pod has the rest all the same, on a node that is
// back in service. Whoever makes a pod may give it any.
const maxGrace = time.Hour

// HoldsDrain says that a pod which was told to end has still time to, although a drain is over its own at the
// deadline. A pod that was told after that does not count: those that come back as soon as they are evicted would hold
// the drain for ever.
func HoldsDrain(pod *corev1.Pod, deadline, now time.Time) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	var grace time.Duration
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	told := pod.DeletionTimestamp.Add(-grace) // the API server counts the grace period from there
	return !told.After(deadline) && now.Before(told.Add(min(grace, maxGrace)))
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
