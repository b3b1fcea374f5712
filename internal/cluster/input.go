package cluster

import (
	"encoding/json"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Inputs implements Source. The rendered MachineConfig is none: its name changes with its content, and the pool has the name.
func (r *Reader) Inputs() []Input {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	return []Input{
		{&configv1.Infrastructure{ObjectMeta: named(singleton)}, content(func(o *configv1.Infrastructure) []any {
			return []any{platform(o), o.Status.APIServerInternalURL}
		})},
		{&configv1.Network{ObjectMeta: named(singleton)}, content(func(o *configv1.Network) []any {
			return []any{o.Spec.NetworkType, o.Spec.ServiceNetwork}
		})},
		{&operatorv1.Network{ObjectMeta: named(singleton)}, content(func(o *operatorv1.Network) []any {
			overlay := overlayOf(o)
			if overlay == nil {
				return nil
			}
			port := uint32(0)
			if overlay.HybridOverlayVXLANPort != nil {
				port = *overlay.HybridOverlayVXLANPort
			}
			return []any{len(overlay.HybridClusterNetwork) > 0, port}
		})},
		{&machineconfigurationv1.ControllerConfig{ObjectMeta: named(controllerConfig)}, content(func(o *machineconfigurationv1.ControllerConfig) []any {
			return []any{o.Spec.KubeAPIServerServingCAData}
		})},
		{&machineconfigurationv1.MachineConfigPool{ObjectMeta: named(workerPool)}, content(func(o *machineconfigurationv1.MachineConfigPool) []any {
			return []any{renderedName(o)}
		})},
	}
}

// content makes the Content of an Input from a function of the object's own type.
func content[T client.Object](parts func(T) []any) func(client.Object) string {
	return func(object client.Object) string {
		o, ok := object.(T)
		if !ok {
			return ""
		}
		text, err := json.Marshal(parts(o))
		if err != nil {
			return o.GetResourceVersion()
		}
		return string(text)
	}
}
