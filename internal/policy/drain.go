package policy

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxGrace limits how long a drain waits for grace periods after its deadline, because a pod may have any grace
// period. After that, the node returns to service, and the pod keeps the rest of its grace period there.
const maxGrace = time.Hour

// HoldsDrain reports whether a drain waits for a terminating pod although the drain's deadline is over, because the
// pod's grace period is not over. A pod that was created after the drain began and deleted after the deadline doesn't
// count. Otherwise, pods that are recreated as soon as they are evicted would hold the drain forever.
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

// HasEnded reports that a deleted pod has ended and exists only because of a finalizer. Nothing of it runs,
// and no drain waits for it.
func HasEnded(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil &&
		(pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// DaemonSetOf returns the reference to the DaemonSet that would recreate a pod on its node, or nil. A pod may
// name any owner, so the caller must check that a DaemonSet with this UID exists. References with an invalid
// name are ignored.
func DaemonSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(pod)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if owner == nil || ended || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() ||
		len(validation.IsDNS1123Subdomain(owner.Name)) > 0 {
		return nil
	}
	return owner
}
