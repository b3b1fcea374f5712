package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/windows-nodes/wmco/internal/contract"
)

// How long a pod must have been pending before it counts as unplaceable. Before UnplaceableAfter, an autoscaler may
// still create a machine for the pod. Before UnplaceableJoining, a host that is joining may become a node for it.
const (
	UnplaceableAfter   = 10 * time.Minute
	UnplaceableJoining = 40 * time.Minute
)

// MisplacedPod returns why a pod on a Windows node can't run there. Without such a reason, both results are empty.
func MisplacedPod(pod *corev1.Pod) (reason contract.Reason, why string) {
	system := PodSystem(&pod.Spec)
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return "", ""
	case system == string(corev1.Linux):
		return contract.ReasonLinuxPodPlaced, "is for Linux, as it says"
	case pod.Status.Phase == corev1.PodFailed:
		return "", ""
	}
	image := imageOfAnother(pod)
	switch {
	case image == "":
		return "", ""
	case system == string(corev1.Windows):
		return contract.ReasonImageNotForNode, "has the image " + image + ", which has nothing for its node's build"
	}
	return contract.ReasonLinuxPodPlaced, "names no system, and its image " + image + " has nothing for Windows"
}

// PodSystem returns the operating system that a pod is for, or "" if the pod doesn't say. It looks at spec.os, the node
// selector and the required node affinity, in this order. The node selector of an existing pod includes the node
// selector of its RuntimeClass. If the alternatives of the affinity don't all select the same operating system, the
// affinity doesn't count.
func PodSystem(spec *corev1.PodSpec) string {
	if spec.OS != nil && spec.OS.Name != "" {
		return string(spec.OS.Name)
	}
	for _, label := range []string{corev1.LabelOSStable, "beta.kubernetes.io/os"} {
		if system := spec.NodeSelector[label]; system != "" {
			return system
		}
	}
	if spec.NodeSelector[contract.BuildLabel] != "" {
		return string(corev1.Windows)
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil ||
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	found := ""
	for i, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		one := ""
		for _, e := range term.MatchExpressions {
			if e.Key == corev1.LabelOSStable && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				one = e.Values[0]
			}
		}
		if one == "" || i > 0 && one != found {
			return ""
		}
		found = one
	}
	return found
}

// imageOfAnother returns an image of the pod that is for another operating system or another Windows build, or "". Only
// the messages of containerd and of the host show this.
func imageOfAnother(pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.State.Running != nil {
			continue
		}
		// When a container is about to be restarted, the message is in its last termination.
		var messages string
		if c.State.Waiting != nil {
			messages = c.State.Waiting.Message
		}
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil {
				messages += "\n" + end.Message
			}
		}
		for _, text := range []string{"no match for platform in manifest", "no matching manifest for windows",
			"operating system does not match the host operating system"} {
			if strings.Contains(messages, text) {
				return c.Image
			}
		}
	}
	return ""
}

// UnplaceablePod returns why no Windows node will ever run a pending pod for Windows. The reason is empty if a node may
// run the pod, or if the pod has been pending for less time than the parameter `after`.
func UnplaceablePod(pod *corev1.Pod, nodes []corev1.Node, now time.Time,
	after time.Duration) (reason contract.Reason, why string) {
	if pod.Spec.NodeName != "" || !pod.DeletionTimestamp.IsZero() || PodSystem(&pod.Spec) != string(corev1.Windows) ||
		!waits(pod, now, after) {
		return "", ""
	}
	if len(nodes) == 0 {
		return contract.ReasonPodUnplaceable, "the cluster has no Windows node"
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	others, small := 0, 0
	taints := map[string]int{}
	for i := range nodes {
		node := &nodes[i]
		matches, err := affinity.Match(node)
		if err != nil {
			return contract.ReasonPodUnplaceable, fmt.Sprintf("its node affinity can't be read: %v", err)
		}
		taint, tainted := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints,
			pod.Spec.Tolerations, Lasts, false)
		switch {
		case !matches:
			others++
		case tainted:
			taints[taint.ToString()]++
		case exceeds(requests, node.Status.Allocatable):
			small++
		default:
			return "", ""
		}
	}
	return contract.ReasonPodUnplaceable, causes(len(nodes), others, small, taints)
}

func waits(pod *corev1.Pod, now time.Time, after time.Duration) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable && now.Sub(c.LastTransitionTime.Time) >= after
	})
}

// Lasts reports whether a taint keeps pods away permanently. The taints of a node that is cordoned, not ready, or under
// pressure are not permanent.
func Lasts(taint *corev1.Taint) bool {
	return taint.Effect != corev1.TaintEffectPreferNoSchedule && !strings.HasPrefix(taint.Key, "node.kubernetes.io/") &&
		!strings.HasPrefix(taint.Key, "node.cloudprovider.kubernetes.io/")
}

// The function `exceeds` reports whether a pod requests more than a node could offer without other pods.
func exceeds(requests, allocatable corev1.ResourceList) bool {
	for name, wanted := range requests {
		if has, known := allocatable[name]; wanted.Cmp(has) > 0 && (known || !wanted.IsZero()) {
			return true
		}
	}
	return false
}

func causes(all, others, small int, taints map[string]int) string {
	var list []string
	if others > 0 {
		list = append(list, fmt.Sprintf("%d not selected by its node selector, RuntimeClass or affinity", others))
	}
	for taint, n := range taints {
		list = append(list, fmt.Sprintf("%d with the taint %s, which it does not tolerate", n, taint))
	}
	if small > 0 {
		list = append(list, fmt.Sprintf("%d with less than it requests", small))
	}
	slices.Sort(list)
	return fmt.Sprintf("of %d Windows nodes none can take it: %s", all, strings.Join(list, "; "))
}
