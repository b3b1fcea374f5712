package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Drain is the progress of a node's drain.
type Drain struct {
	Node     string `json:"node"`
	Cordoned bool   `json:"cordoned"`
	// Began is when the host got its slot in the rollout budget. It is nil if the host has no slot.
	Began *metav1.Time `json:"began,omitempty"`
	// Tries counts the drain attempts that took too long.
	Tries int32      `json:"tries,omitempty"`
	Pods  []DrainPod `json:"pods"`
}

// DrainPod is a pod that the drain must evict from the node.
type DrainPod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Ending is when the pod's grace period ends. It is nil unless the pod is being deleted.
	Ending *metav1.Time `json:"ending,omitempty"`
	// Blocked explains which PodDisruptionBudgets don't allow the pod's eviction now. It is empty if none blocks it.
	Blocked string `json:"blocked,omitempty"`
}

// DrainOf returns the progress of a node's drain. `pods` contains the pods that the drain must evict.
func DrainOf(node *corev1.Node, instance *v1alpha1.WindowsInstance, pods []corev1.Pod,
	budgets []policyv1.PodDisruptionBudget) Drain {
	d := Drain{Node: node.Name, Cordoned: node.Spec.Unschedulable, Pods: drainPods(pods, budgets)}
	if instance.Status.HasSlot() {
		d.Began = instance.Status.Slot.Since
	}
	if activity := instance.Status.Activity; activity != nil {
		d.Tries = activity.Tries
	}
	return d
}

// Healthy reports whether no PodDisruptionBudget blocks the eviction of a pod.
func (d *Drain) Healthy() bool {
	return !slices.ContainsFunc(d.Pods, func(pod DrainPod) bool { return pod.Blocked != "" })
}

// Print writes the progress of the drain as text for people.
func (d *Drain) Print(out io.Writer, style Style) error {
	p := &paper{Style: style}
	state := map[bool]string{true: "cordoned", false: "schedulable"}[d.Cordoned]
	if d.Began != nil {
		state += ", being drained for " + p.age(*d.Began)
	}
	if d.Tries > 0 {
		state += fmt.Sprintf(", %d tries failed", d.Tries)
	}
	p.line("node %s: %s, %s must leave", d.Node, state, contract.Count(len(d.Pods), "pod"))
	var rows [][]string
	for _, pod := range d.Pods {
		ending := "-"
		if pod.Ending != nil {
			ending = pod.Ending.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{pod.Namespace, pod.Name, ending, cmp.Or(pod.Blocked, "-")})
	}
	if len(rows) > 0 {
		if err := p.table([]string{"Namespace", "Pod", "Ends-by", "Held-by"}, rows); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, p.String())
	return err
}

func drainPods(pods []corev1.Pod, budgets []policyv1.PodDisruptionBudget) []DrainPod {
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
