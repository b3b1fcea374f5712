package instance

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// Reasons of events about an instance and its source. Users rely on these reasons.
const (
	eventSetup        = "InstanceSetup"
	eventSetupFailure = "InstanceSetupFailure"
	eventTeardown     = "InstanceTeardown"

	eventMachineSetup        = "MachineSetup"
	eventMachineSetupFailure = "MachineSetupFailure"
)

// maxNote is the maximum length of an event's note, in bytes. The API allows 1024.
const maxNote = 1000

func setupEvent(instance *v1alpha1.WindowsInstance) journey.Event {
	return journey.Event{Type: corev1.EventTypeNormal, Reason: eventSetup, Action: "Join",
		Note: fmt.Sprintf("%s is node %s at revision %s", instance.Spec.Address, instance.Status.NodeName,
			instance.Status.Revision)}
}

// failureEvent reports that an attempt failed. Its action contains the reason. Otherwise, Kubernetes would count
// failures with different reasons as one event, with the note of the first failure.
func failureEvent(phase v1alpha1.Phase, p *contract.Problem) journey.Event {
	return journey.Event{Type: corev1.EventTypeWarning, Reason: eventSetupFailure,
		Action: string(phase) + string(p.Reason),
		Note:   p.Explain()}
}

func teardownEvent(instance *v1alpha1.WindowsInstance) journey.Event {
	how := "was cleaned and is no longer a node"
	switch instance.Spec.RemovalPolicy {
	case v1alpha1.RemovalForce:
		how = "is no longer a node; it may not be clean, because spec.removalPolicy was Force"
	case v1alpha1.RemovalDiscard:
		how = "is no longer a node; it was deleted with its Machine"
	}
	return journey.Event{Type: corev1.EventTypeNormal, Reason: eventTeardown, Action: "Leave",
		Note: instance.Spec.Address + " " + how}
}

// recorder records events about an instance, and about its entry in the ConfigMap or its Machine.
type recorder struct {
	client client.Reader
	events events.EventRecorder
}

func (r recorder) record(ctx context.Context, instance *v1alpha1.WindowsInstance, all ...journey.Event) {
	for _, e := range all {
		note := strings.ToValidUTF8(e.Note[:min(len(e.Note), maxNote)], "")
		r.events.Eventf(instance, nil, e.Type, e.Reason, e.Action, "%s", note)
		if entry := r.entry(ctx, instance); entry != nil {
			r.events.Eventf(entry, instance, e.Type, e.Reason, e.Action, "%s", note)
		}
		if machine := machine(instance); machine != nil && ofMachines(e.Reason) != "" {
			r.events.Eventf(machine, instance, e.Type, ofMachines(e.Reason), e.Action, "%s", note)
		}
	}
}

// ofMachines returns the reason of the corresponding event about a Machine, or "" if there is none.
func ofMachines(reason string) string {
	switch reason {
	case eventSetup:
		return eventMachineSetup
	case eventSetupFailure:
		return eventMachineSetupFailure
	}
	return ""
}

// machine returns a reference to the instance's Machine, or nil.
func machine(instance *v1alpha1.WindowsInstance) *corev1.ObjectReference {
	source := instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceMachine {
		return nil
	}
	return &corev1.ObjectReference{
		APIVersion: contract.MachineAPIVersion, Kind: string(source.Kind), Namespace: contract.MachineAPINamespace,
		Name: source.Name, UID: source.UID,
	}
}

// entry returns a reference to the instance's entry in windows-instances, or nil. kubectl describe needs the UID.
func (r recorder) entry(ctx context.Context, instance *v1alpha1.WindowsInstance) *corev1.ObjectReference {
	source := instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceConfigMap {
		return nil
	}
	entry := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: instance.Namespace, Name: contract.InstancesConfigMap,
		FieldPath: "data{" + source.Name + "}",
	}
	list := &corev1.ConfigMap{}
	if err := r.client.Get(ctx, types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}, list); err == nil {
		entry.UID = list.UID
	}
	return entry
}
