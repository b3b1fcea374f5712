package policy

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// The rule `staying` requires that the instance is not being removed. While a host is cleaned, it gets no certificates.
func staying(f csrFacts) *csrFault {
	if f.instance.Leaving || f.instance.Phase == v1alpha1.PhaseRemoving {
		return notYet(CSRInstanceLeaving, "instance %s is being removed", f.instance.Name)
	}
	return nil
}

// The rule `joining` requires that the join is in a phase when kubelet and the daemon request their first certificates.
func joining(f csrFacts) *csrFault {
	due := []v1alpha1.Phase{v1alpha1.PhaseBootstrapping, v1alpha1.PhaseAdopting, v1alpha1.PhaseHandingOver,
		v1alpha1.PhaseConfirming}
	if !slices.Contains(due, f.instance.Phase) {
		return notYet(CSRPhaseEarly, "instance %s is in phase %s: no first certificate is due", f.instance.Name,
			f.instance.Phase)
	}
	return nil
}

// nodeIsOurs requires that the Node exists and was adopted for this instance. Kubelet may write the annotations of its
// own Node. So if the instance contains the UID of a Node, this UID must match as well.
func nodeIsOurs(f csrFacts) *csrFault {
	if f.Node == nil {
		return notYet(CSRNodePending, "Node %s does not exist yet", f.claim.NodeName)
	}
	if f.Node.Name != f.claim.NodeName {
		return notYet(CSRNodePending, "another Node was looked up")
	}
	owner := f.Node.Annotations[contract.InstanceAnnotation]
	switch {
	case owner == "":
		return notYet(CSRNodeUnadopted, "Node %s has not been adopted yet", f.Node.Name)
	case owner != f.instance.reference():
		return fault(CSRNodeForeign, "Node %s belongs to instance %s", f.Node.Name, shown(owner))
	case f.instance.NodeUID != "" && f.instance.NodeUID != string(f.Node.UID):
		return notYet(CSRNodeUnadopted, "Node %s was created again and has not been adopted yet", f.Node.Name)
	}
	return nil
}

// nodeIsWindows reports whether a Node runs Windows. If an unadopted Node runs another operating system, the Node
// belongs to another machine with the same name.
func nodeIsWindows(node *corev1.Node) bool {
	return node.Status.NodeInfo.OperatingSystem == string(corev1.Windows) ||
		node.Labels[corev1.LabelOSStable] == string(corev1.Windows)
}
