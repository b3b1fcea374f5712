package policy

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxGrace limits how long a drain waits for pods' grace periods after the drain's deadline. Grace periods may have any
// length. After maxGrace, the node returns to service, and terminating pods run for the rest of their grace periods.
const maxGrace = time.Hour

// HoldsDrain reports whether a drain must wait for a terminating pod after the drain's deadline, because the pod's
// grace period is not over. HoldsDrain returns false for a pod that was created after the drain began and deleted after
// the deadline. Otherwise, pods that are recreated as soon as they are evicted would delay the drain forever.
func HoldsDrain(pod *corev1.Pod, began, deadline, now time.Time) bool {
	if pod.DeletionTimestamp == nil || !now.Before(deadline.Add(maxGrace)) {
		return false
	}
	var grace time.Duration
	if seconds := pod.DeletionGracePeriodSeconds; seconds != nil {
		grace = time.Duration(*seconds) * time.Second
	}
	deletedAt := pod.DeletionTimestamp.Add(-grace) // the API server adds the grace period to the time of the deletion
	wasThere := !pod.CreationTimestamp.After(began)
	return (wasThere || !deletedAt.After(deadline)) && now.Before(deletedAt.Add(grace))
}

// HasEnded reports whether a deleted pod has ended and exists only because of a finalizer. None of its containers runs,
// so no drain waits for it.
func HasEnded(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil &&
		(pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// DaemonSetOf returns the reference to the DaemonSet that would recreate a pod on its node, or nil. Pods may claim any
// owner, so the caller must check that a DaemonSet with this UID exists. Invalid names are ignored.
func DaemonSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(pod)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if owner == nil || ended || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() ||
		len(validation.IsDNS1123Subdomain(owner.Name)) > 0 {
		return nil
	}
	return owner
}
