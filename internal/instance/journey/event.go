package journey

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Reasons of events about nodes that are disrupted or removed. The events belong to the node's WindowsInstance.
const (
	EventUpdateStarted = "UpdateStarted"
	EventRejoinStarted = "RejoinStarted"
	EventUpdated       = "Updated"
	EventUpdateFailed  = "UpdateFailed"
	EventRebootStarted = "RebootStarted"
	EventRebooted      = "Rebooted"
	EventRebootFailed  = "RebootFailed"
	EventRebootAdvised = "RebootAdvised"
	EventKeysDeleted   = "KeysDeleted"
)

// Event is an event about an instance. The API counts events that differ only in their note as one event.
type Event struct{ Type, Reason, Action, Note string }

// RebootAdvisedEvent reports that a host needs a reboot before it is clean.
func RebootAdvisedEvent(instance *v1alpha1.WindowsInstance) Event {
	return Event{corev1.EventTypeWarning, EventRebootAdvised, "Leave", instance.Spec.Address + " was cleaned, except " +
		"for what Windows changes with a reboot only, such as files in use: reboot it before it is used otherwise"}
}

// KeysDeletedEvent reports that a join deleted the keys of another kubelet.
func KeysDeletedEvent(instance *v1alpha1.WindowsInstance) Event {
	return Event{corev1.EventTypeNormal, EventKeysDeleted, "Join", instance.Spec.Address + ": the join deleted " +
		contract.DirKubeletPKI + ", the keys of another kubelet, because others than Administrators could write them"}
}

// StartedEvent reports that a node begins an upgrade or a reboot.
func StartedEvent(status *v1alpha1.WindowsInstanceStatus) Event {
	reason, goal := EventRebootStarted, "a reboot"
	if update := status.Upgrade(); update != nil {
		reason, goal = EventUpdateStarted, "the upgrade to revision "+update.Revision
	}
	return Event{corev1.EventTypeNormal, reason, string(status.Activity.Kind),
		fmt.Sprintf("node %s was granted a slot in the rollout budget for %s", status.NodeName, goal)}
}

// RejoinEvent reports that a node is about to be disrupted by a join of its host.
func RejoinEvent(status *v1alpha1.WindowsInstanceStatus) Event {
	reason, goal := EventRejoinStarted, "be joined again"
	if update := status.Upgrade(); update != nil && update.Step == v1alpha1.StepSwitching {
		reason, goal = EventUpdateStarted, "go to revision "+update.Revision
	}
	return Event{corev1.EventTypeNormal, reason, reason,
		fmt.Sprintf("node %s was granted a slot in the rollout budget to %s over SSH", status.NodeName, goal)}
}

// DoneEvent reports that an upgrade or a reboot ended, and the node is back in service.
func DoneEvent(kind v1alpha1.ActivityKind, note string) Event {
	reason := EventUpdated
	if kind == v1alpha1.ActivityReboot {
		reason = EventRebooted
	}
	return Event{corev1.EventTypeNormal, reason, string(kind), note}
}

// FailedEvent reports that an upgrade or a reboot failed.
func FailedEvent(kind v1alpha1.ActivityKind, p *contract.Problem) Event {
	reason := EventUpdateFailed
	if kind == v1alpha1.ActivityReboot {
		reason = EventRebootFailed
	}
	return Event{corev1.EventTypeWarning, reason, string(kind) + string(p.Reason),
		p.Explain()}
}
