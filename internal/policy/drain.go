package policy

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

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
