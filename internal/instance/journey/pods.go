package journey

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mustGo reports whether a drain moves a pod: not what the node itself or a DaemonSet runs there.
func (p *Parts) mustGo(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if _, static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return false, nil
	}
	owner := metav1.GetControllerOf(pod)
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if owner == nil || ended || owner.Kind != "DaemonSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() {
		return true, nil
	}
	_, err := p.Pods.AppsV1().DaemonSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil // nothing would start it anew
	}
	if err != nil {
		return false, fmt.Errorf("reading DaemonSet %s/%s: %w", pod.Namespace, owner.Name, err)
	}
	return false, nil
}
