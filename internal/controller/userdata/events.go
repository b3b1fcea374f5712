package userdata

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// tell says a problem at the WindowsMachineConfig. Events that differ in their note only are
// counted as one, so the reason is the action, too.
func (r *reconciler) tell(kind string, problem *contract.Problem) {
	config := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion().String(), Kind: "WindowsMachineConfig",
		Name: contract.MachineConfigObject}
	r.events.Eventf(config, nil, kind, string(problem.Reason), "Publish", "%s", said(problem))
}
