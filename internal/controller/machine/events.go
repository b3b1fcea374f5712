package machine

import (
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Reasons of events. Users rely on these reasons.
const (
	eventSetupFailure       = "MachineSetupFailure"
	eventDeleted            = "MachineDeleted"
	eventDeletionFailed     = "MachineDeletionFailed"
	eventDeletionRestricted = "MachineDeletionRestricted"
)

// reporter returns a function that reports findings as events. The action contains the reason of the finding:
// Kubernetes counts events that differ only in their note as one event, with the first note.
func (r *Reconciler) reporter(event, action string) func(finding) {
	return func(f finding) {
		r.events.Eventf(reference(f.machine), nil, corev1.EventTypeWarning, event, action+string(f.problem.Reason),
			"%.500v. %.400s", f.problem, f.problem.Reason.Fix())
	}
}

func (r *Reconciler) tellDeleted(m inventory.Machine, cause policy.ReplaceCause) {
	reason := contract.ReasonMachineReplaced
	r.events.Eventf(reference(m), nil, corev1.EventTypeNormal, eventDeleted, "Replace"+string(cause),
		"its host does not accept the current private key; its MachineSet makes another (%s %s)", reason.Code(), reason)
}

func (r *Reconciler) tellFailed(m inventory.Machine, cause policy.ReplaceCause, err error) {
	r.events.Eventf(reference(m), nil, corev1.EventTypeWarning, eventDeletionFailed, "Replace"+string(cause), "%.900v",
		err)
}

func reference(m inventory.Machine) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: machinev1beta1.GroupVersion.String(), Kind: "Machine", Namespace: m.Namespace, Name: m.Name,
		UID: m.UID,
	}
}
