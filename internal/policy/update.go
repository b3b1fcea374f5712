package policy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Verdict is a decision with its reason in words.
type Verdict struct {
	Allowed bool
	Why     string
}

// MayDisrupt decides whether one more node may be taken to another version. maxUnavailable is a number, or a percentage of nodes, rounded
// up as disruption budgets do; nil means 1. A node counts as unavailable for whatever cause: not Ready, cordoned by us, not yet at the
// version that it is being taken to, or named in busy, which holds those that were let go ahead and do not show it yet. A node that is
// unavailable already may always be worked on: it costs nothing more.
func MayDisrupt(node *corev1.Node, fleet []corev1.Node, busy map[string]bool, maxUnavailable *intstr.IntOrString) Verdict {
	if unavailable(node) {
		return Verdict{Allowed: true, Why: "the node is unavailable already"}
	}
	limit := 1
	if maxUnavailable != nil {
		scaled, err := intstr.GetScaledValueFromIntOrPercent(maxUnavailable, len(fleet), true)
		if err != nil {
			return Verdict{Why: fmt.Sprintf("maxUnavailable %q is neither a number nor a percentage", maxUnavailable.String())}
		}
		limit = scaled
	}
	down := 0
	for i := range fleet {
		if busy[fleet[i].Name] || unavailable(&fleet[i]) {
			down++
		}
	}
	if down >= limit {
		return Verdict{Why: fmt.Sprintf("%d of %d nodes are unavailable and maxUnavailable is %d", down, len(fleet), limit)}
	}
	return Verdict{Allowed: true, Why: fmt.Sprintf("%d of %d nodes are unavailable and maxUnavailable is %d", down, len(fleet), limit)}
}

func unavailable(node *corev1.Node) bool {
	if node.Annotations[contract.CordonedAnnotation] == "true" ||
		node.Annotations[contract.VersionAnnotation] != node.Annotations[contract.DesiredVersionAnnotation] {
		return true
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return true
}
