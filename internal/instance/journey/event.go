package journey

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Reasons of events about nodes that are disrupted or removed; they appear on the instance.
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

// Event is to be reported about an instance. The action is part of its identity: events that differ
// in their note only are counted as one.
type Event struct{ Type, Reason, Action, Note string }

// RebootAdvisedEvent says that a host was cleaned as far as it goes without a reboot.
func RebootAdvisedEvent(instance *v1alpha1.WindowsInstance) Event {
	return Event{corev1.EventTypeWarning, EventRebootAdvised, "Leave", instance.Spec.Address + " was cleaned, except " +
		"for what Windows changes with a reboot only, such as files in use: reboot it before it is used otherwise"}
}

// KeysDeletedEvent says that a join deleted keys of a kubelet that was there before.
func KeysDeletedEvent(instance *v1alpha1.WindowsInstance) Event {
	return Event{corev1.EventTypeNormal, EventKeysDeleted, "Join", instance.Spec.Address + ": the join deleted " +
		contract.DirKubeletPKI + ", the keys of another kubelet, because others than Administrators could write them"}
}

// StartedEvent says that a node has its turn to be disrupted; nil for what no pod feels, and for what goes over SSH, of
// which RejoinEvent says so.
func StartedEvent(purpose v1alpha1.DisruptionPurpose, status *v1alpha1.WindowsInstanceStatus) []Event {
	if purpose == v1alpha1.DisruptionReboot {
		return []Event{{corev1.EventTypeNormal, EventRebootStarted, string(purpose),
			fmt.Sprintf("node %s was granted a place in the rollout budget to be rebooted", status.NodeName)}}
	}
	if update := status.Upgrade(); update != nil && update.Drains && !update.OverSSH {
		return []Event{{corev1.EventTypeNormal, EventUpdateStarted, string(purpose),
			fmt.Sprintf("node %s was granted a place in the rollout budget to go to revision %s", status.NodeName,
				update.Revision)}}
	}
	return nil
}

// RejoinEvent says that a node has its turn to be disrupted by a join of its host, which is reached and has what it
// lacked.
func RejoinEvent(status *v1alpha1.WindowsInstanceStatus) Event {
	reason, goal := EventRejoinStarted, "be joined again"
	if update := status.Upgrade(); update != nil && update.Step == v1alpha1.StepSwitching {
		reason, goal = EventUpdateStarted, "go to revision "+update.Revision
	}
	return Event{corev1.EventTypeNormal, reason, reason,
		fmt.Sprintf("node %s was granted a place in the rollout budget to %s over SSH", status.NodeName, goal)}
}

// DoneEvent says that it is over, and the node is back in service.
func DoneEvent(purpose v1alpha1.DisruptionPurpose, note string) Event {
	reason := EventUpdated
	if purpose == v1alpha1.DisruptionReboot {
		reason = EventRebooted
	}
	return Event{corev1.EventTypeNormal, reason, string(purpose), note}
}

// FailedEvent says that it did not end well.
func FailedEvent(purpose v1alpha1.DisruptionPurpose, p *contract.Problem) Event {
	reason := EventUpdateFailed
	if purpose == v1alpha1.DisruptionReboot {
		reason = EventRebootFailed
	}
	return Event{corev1.EventTypeWarning, reason, string(purpose) + string(p.Reason),
		fmt.Sprintf("%v. %s", p, p.Reason.Fix())}
}
