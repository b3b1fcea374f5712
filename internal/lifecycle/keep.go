package lifecycle

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Care is what a host that has joined needs.
type Care struct {
	Node *corev1.Node
	// Rejoin says why the host must walk the way in again; nil when it need not.
	Rejoin *contract.Problem
	// Update says that another version is desired, and the host must walk the way in again as soon as the budget allows.
	Update bool
	// Outcome is how the node is: done, or what it waits for.
	Outcome Outcome
}

// Keep looks at a host that has joined, through its Node only, and puts our marks back where they are gone.
func (w *Walker) Keep(ctx context.Context, instance *v1alpha1.WindowsInstance) (Care, error) {
	status := &instance.Status
	node, err := w.node(ctx, status.NodeName)
	if err != nil {
		return Care{}, err
	}
	if node == nil {
		return Care{Rejoin: contract.NewProblem(contract.ReasonNodePending, "node %s vanished", status.NodeName)}, nil
	}
	if problem := Foreign(node, instance); problem != nil {
		return Care{Node: node, Outcome: Wait(0, problem.Reason, "%s", problem.Detail)}, nil
	}
	if err = w.mark(ctx, node, Marks{Instance: instance, Version: status.DesiredVersion}); err != nil {
		return Care{}, err
	}
	status.NodeUID = string(node.UID)
	status.Version, status.KubeletVersion = node.Annotations[contract.VersionAnnotation], node.Status.NodeInfo.KubeletVersion
	care := Care{Node: node}
	if desired, _, err := w.Desired.Current(ctx); err == nil && desired.Version != status.DesiredVersion {
		care.Update = true
		care.Outcome = Wait(0, contract.ReasonVersionPending, "version %s is desired and waits for the rollout budget", desired.Version)
		return care, nil
	}
	if status.Version != status.DesiredVersion {
		care.Outcome = Wait(0, contract.ReasonVersionPending, "node %s has version %q and should have %q%s", node.Name, status.Version, status.DesiredVersion, said(node))
		return care, nil
	}
	if ready, message := NodeReady(node); !ready {
		care.Outcome = Wait(0, contract.ReasonNodeNotReady, "node %s: %s", node.Name, message)
		return care, nil
	}
	return care, w.uncordon(ctx, node)
}
