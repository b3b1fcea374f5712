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

// Event reasons that users of the contract know; they appear on the source of an instance and on the instance itself.
const (
	eventSetup        = "InstanceSetup"
	eventSetupFailure = "InstanceSetupFailure"
	eventTeardown     = "InstanceTeardown"
)

// maxNote keeps notes below the 1024 bytes that the API allows.
const maxNote = 1000

// tellSetup says that a host became a node.
func (w *walk) tellSetup(ctx context.Context) {
	w.tell(ctx, corev1.EventTypeNormal, eventSetup, "Join",
		fmt.Sprintf("%s is node %s at version %s", w.instance.Spec.Address, w.instance.Status.NodeName, w.instance.Status.Version))
}

// tellFailure says that an attempt failed. The reason is part of the action, because events that differ in their note only are counted
// as one, and only the first one's note is kept.
func (w *walk) tellFailure(ctx context.Context, p *contract.Problem) {
	w.tell(ctx, corev1.EventTypeWarning, eventSetupFailure, string(w.instance.Status.Phase)+string(p.Reason), fmt.Sprintf("%v. %s", p, p.Reason.Fix()))
}

// tellTeardown says that a host was given back.
func (w *walk) tellTeardown(ctx context.Context, force bool) {
	how := "was cleaned and is no node any more"
	if force {
		how = "is no node any more; it may not be clean, as spec.removalPolicy was Force"
	}
	w.tell(ctx, corev1.EventTypeNormal, eventTeardown, "Leave", w.instance.Spec.Address+" "+how)
}

// tell says something at the instance, and at the entry that it was made from.
func (w *walk) tell(ctx context.Context, kind, reason, action, note string) {
	note = strings.ToValidUTF8(note[:min(len(note), maxNote)], "")
	w.events.Eventf(w.instance, nil, kind, reason, action, "%s", note)
	if entry := w.entry(ctx); entry != nil {
		w.events.Eventf(entry, w.instance, kind, reason, action, "%s", note)
	}
}

// entry is the part of windows-instances that the instance was made from; nil for one that was made otherwise. With the UID, kubectl
// describe finds events about it; the ConfigMap may be gone, and with it the UID.
func (w *walk) entry(ctx context.Context) *corev1.ObjectReference {
	source := w.instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceConfigMap {
		return nil
	}
	entry := &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ConfigMap", Namespace: w.instance.Namespace, Name: contract.InstancesConfigMap, FieldPath: "data{" + source.Name + "}",
	}
	list := &corev1.ConfigMap{}
	if err := w.client.Get(ctx, types.NamespacedName{Namespace: entry.Namespace, Name: entry.Name}, list); err == nil {
		entry.UID = list.UID
	}
	return entry
}
