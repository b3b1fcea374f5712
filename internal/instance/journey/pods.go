package journey

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/policy"
)

// mustGo reports whether a drain must evict a pod. Static pods, pods of a DaemonSet, and terminated pods that only wait
// for a finalizer may stay. If the API server doesn't answer, mustGo returns false and records the error in podsLeft.
func (p *Parts) mustGo(ctx context.Context, pod *corev1.Pod, left *podsLeft) bool {
	if policy.HasEnded(pod) {
		return false
	}
	if _, static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return false
	}
	owner := policy.DaemonSetOf(pod)
	if owner == nil {
		return true
	}
	if left.isAway() {
		return false
	}
	call, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	set, err := p.Pods.AppsV1().DaemonSets(pod.Namespace).Get(call, owner.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true // no controller would create the pod again
	case err == nil:
		return set.UID != owner.UID // a new DaemonSet with the same name doesn't own the pod
	case IsAPIResponse(err):
		left.count++ // the pod exists, and it is unknown whether it may stay
	}
	left.note(pod, fmt.Errorf("reading DaemonSet %s/%s: %w", pod.Namespace, owner.Name, err))
	return false
}
