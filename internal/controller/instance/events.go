package instance

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Event reasons that users of the contract know; they appear on the source of an instance and on
// the instance itself.
const (
	eventSetup        = "InstanceSetup"
	eventSetupFailure = "InstanceSetupFailure"
	eventTeardown     = "InstanceTeardown"

	eventMachineSetup        = "MachineSetup"
	eventMachineSetupFailure = "MachineSetupFailure"
)

// Event reasons of what nodes are disturbed for; they appear on the instance.
const (
	eventUpdateStarted = "UpdateStarted"
	eventUpdated       = "Updated"
	eventUpdateFailed  = "UpdateFailed"
	eventRebootStarted = "RebootStarted"
	eventRebooted      = "Rebooted"
	eventRebootFailed  = "RebootFailed"
)

// maxNote keeps notes below the 1024 bytes that the API allows.
const maxNote = 1000

// tellSetup says that a host became a node.
func (w *walk) tellSetup(ctx context.Context) {
	w.tell(ctx, corev1.EventTypeNormal, eventSetup, "Join",
		fmt.Sprintf("%s is node %s at version %s", w.instance.Spec.Address, w.instance.Status.NodeName,
			w.instance.Status.Revision))
}

// tellFailure says that an attempt failed. The reason is part of the action, because events that
// differ in their note only are counted as one, and only the first one's note is kept.
func (w *walk) tellFailure(ctx context.Context, p *contract.Problem) {
	w.tell(ctx, corev1.EventTypeWarning, eventSetupFailure, string(w.instance.Status.Phase)+string(p.Reason),
		fmt.Sprintf("%v. %s", p, p.Reason.Fix()))
}

// tellTeardown says that a host was given back.
func (w *walk) tellTeardown(ctx context.Context) {
	how := "was cleaned and is no node any more"
	switch w.instance.Spec.RemovalPolicy {
	case v1alpha1.RemovalForce:
		how = "is no node any more; it may not be clean, as spec.removalPolicy was Force"
	case v1alpha1.RemovalDiscard:
		how = "is no node any more; it went with its Machine"
	}
	w.tell(ctx, corev1.EventTypeNormal, eventTeardown, "Leave", w.instance.Spec.Address+" "+how)
}

// tellTurn says that a node has its turn to be disturbed.
func (w *walk) tellTurn(ctx context.Context, purpose v1alpha1.DisruptionPurpose) {
	if purpose == v1alpha1.DisruptionReboot {
		w.tell(ctx, corev1.EventTypeNormal, eventRebootStarted, string(purpose),
			fmt.Sprintf("node %s has its turn to be rebooted", w.instance.Status.NodeName))
		return
	}
	if update := w.instance.Status.Update; update != nil && update.Drains {
		w.tell(ctx, corev1.EventTypeNormal, eventUpdateStarted, string(purpose),
			fmt.Sprintf("node %s has its turn to go to version %s", w.instance.Status.NodeName, update.Revision))
	}
}

// tellArrived says that it is over, and the node is back in service.
func (w *walk) tellArrived(ctx context.Context, purpose v1alpha1.DisruptionPurpose, note string) {
	reason := eventUpdated
	if purpose == v1alpha1.DisruptionReboot {
		reason = eventRebooted
	}
	w.tell(ctx, corev1.EventTypeNormal, reason, string(purpose), note)
}

// tellBack says that it did not end well.
func (w *walk) tellBack(ctx context.Context, purpose v1alpha1.DisruptionPurpose, p *contract.Problem) {
	reason := eventUpdateFailed
	if purpose == v1alpha1.DisruptionReboot {
		reason = eventRebootFailed
	}
	w.tell(ctx, corev1.EventTypeWarning, reason, string(purpose)+string(p.Reason),
		fmt.Sprintf("%v. %s", p, p.Reason.Fix()))
}

// tell says something at the instance, and at the entry or Machine that it was made from.
func (w *walk) tell(ctx context.Context, kind, reason, action, note string) {
	note = strings.ToValidUTF8(note[:min(len(note), maxNote)], "")
	w.events.Eventf(w.instance, nil, kind, reason, action, "%s", note)
	if entry := w.entry(ctx); entry != nil {
		w.events.Eventf(entry, w.instance, kind, reason, action, "%s", note)
	}
	if machine := w.machine(); machine != nil && ofMachines(reason) != "" {
		w.events.Eventf(machine, w.instance, kind, ofMachines(reason), action, "%s", note)
	}
}

// ofMachines is what users know a reason by at Machines; empty for one that is not said there.
func ofMachines(reason string) string {
	switch reason {
	case eventSetup:
		return eventMachineSetup
	case eventSetupFailure:
		return eventMachineSetupFailure
	}
	return ""
}

// machine is the Machine that the instance was made from; nil for one that was made otherwise.
func (w *walk) machine() *corev1.ObjectReference {
	source := w.instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceMachine {
		return nil
	}
	return &corev1.ObjectReference{
		APIVersion: contract.MachineAPIVersion, Kind: string(source.Kind), Namespace: contract.MachineAPINamespace,
		Name: source.Name, UID: source.UID,
	}
}

// entry is the part of windows-instances that the instance was made from; nil for one that was made
// otherwise. With the UID, kubectl describe finds events about it; the ConfigMap may be gone, and
// with it the UID.
func (w *walk) entry(ctx context.Context) *corev1.ObjectReference {
	source := w.instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceConfigMap {
		return nil
	}
	entry := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: w.instance.Namespace, Name: contract.InstancesConfigMap,
		FieldPath: "data{" + source.Name + "}",
	}
	list := &corev1.ConfigMap{}
	if err := w.client.Get(ctx, types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}, list); err == nil {
		entry.UID = list.UID
	}
	return entry
}
