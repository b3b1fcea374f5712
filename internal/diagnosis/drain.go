package diagnosis

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// DrainPod is a pod that has to leave a node before it is drained.
type DrainPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Ending is when its grace period ends, if it was told to end.
	Ending *metav1.Time `json:"ending,omitempty"`
	// Blocked says which disruption budgets do not let it go now.
	Blocked string `json:"blocked,omitempty"`
}

// DrainPods says of pods that a drain has to move away which budgets hold them.
func DrainPods(pods []corev1.Pod, budgets []policyv1.PodDisruptionBudget) []DrainPod {
	all := make([]DrainPod, 0, len(pods))
	for i := range pods {
		pod := &pods[i]
		var holding, covering []string
		for b := range budgets {
			budget := &budgets[b]
			selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
			if err != nil || budget.Namespace != pod.Namespace || !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			covering = append(covering, budget.Name)
			if s := budget.Status; s.DisruptionsAllowed <= 0 {
				holding = append(holding, fmt.Sprintf("PodDisruptionBudget %s allows none: %d healthy, %d must be",
					budget.Name, s.CurrentHealthy, s.DesiredHealthy))
			}
		}
		if len(covering) > 1 {
			holding = append(holding, "more than one budget covers it, so no eviction is allowed: "+
				strings.Join(covering, ", "))
		}
		all = append(all, DrainPod{pod.Namespace, pod.Name, pod.DeletionTimestamp, strings.Join(holding, "; ")})
	}
	slices.SortFunc(all, func(a, b DrainPod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all
}
