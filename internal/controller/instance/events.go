package instance

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Event reasons that users of the contract know; they appear on the source of an instance and on the instance itself.
const (
	eventSetup        = "InstanceSetup"
	eventSetupFailure = "InstanceSetupFailure"
	eventTeardown     = "InstanceTeardown"
)

// tellSetup says that a host became a node.
func (w *walk) tellSetup() {
	for _, object := range w.audience() {
		w.events.Eventf(object, nil, corev1.EventTypeNormal, eventSetup, "Join", "%s is node %s at version %s",
			w.instance.Spec.Address, w.instance.Status.NodeName, w.instance.Status.Version)
	}
}

// tellTeardown says that a host was given back.
func (w *walk) tellTeardown(force bool) {
	how := "was cleaned and is no node any more"
	if force {
		how = "is no node any more; it was not cleaned, as spec.removalPolicy asked"
	}
	for _, object := range w.audience() {
		w.events.Eventf(object, nil, corev1.EventTypeNormal, eventTeardown, "Leave", "%s %s", w.instance.Spec.Address, how)
	}
}

// audience are the objects at which a user looks for news of an instance.
func (w *walk) audience() []runtime.Object {
	objects := []runtime.Object{w.instance}
	if source := w.instance.Spec.Source; source != nil && source.Kind == v1alpha1.SourceConfigMap {
		list := &corev1.ConfigMap{}
		list.APIVersion, list.Kind = "v1", "ConfigMap"
		list.Namespace, list.Name = w.instance.Namespace, contract.InstancesConfigMap
		objects = append(objects, list)
	}
	return objects
}

// note is a problem in an event's 1024 characters.
func note(p *contract.Problem) string {
	text := fmt.Sprintf("%v. %s", p, p.Reason.Fix())
	return text[:min(len(text), 1000)]
}
