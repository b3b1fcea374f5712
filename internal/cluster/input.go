package cluster

import (
	"encoding/json"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Inputs implements Source.
func (r *Reader) Inputs() []Input { return Inputs(r.Namespace) }

// Inputs are those of a Reader for an operator in this namespace. The rendered MachineConfig is
// none: its name changes with its content, and the pool has the name.
func Inputs(namespace string) []Input { return append(fixedInputs(), dayTwoInputs(namespace)...) }

// fixedInputs are what a cluster is made with, which hardly ever changes.
func fixedInputs() []Input {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	return []Input{
		{&configv1.Infrastructure{ObjectMeta: named(singleton)}, content(func(o *configv1.Infrastructure) []any {
			return []any{platform(o), o.Status.APIServerInternalURL, virtualIPs(o)}
		})},
		{&configv1.Network{ObjectMeta: named(singleton)}, content(func(o *configv1.Network) []any {
			return []any{o.Spec.NetworkType, o.Spec.ServiceNetwork, o.Spec.ClusterNetwork}
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
			return []any{overlay.HybridClusterNetwork, port}
		})},
		{&machineconfigurationv1.ControllerConfig{ObjectMeta: named(controllerConfig)},
			content(func(o *machineconfigurationv1.ControllerConfig) []any {
				return []any{o.Spec.KubeAPIServerServingCAData}
			})},
		{&machineconfigurationv1.MachineConfigPool{ObjectMeta: named(workerPool)},
			content(func(o *machineconfigurationv1.MachineConfigPool) []any {
				return []any{renderedName(o)}
			})},
	}
}

// dayTwoInputs are what administrators change.
func dayTwoInputs(namespace string) []Input {
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	return []Input{
		{&configv1.Proxy{ObjectMeta: named(singleton)}, content(func(o *configv1.Proxy) []any {
			return []any{o.Status, o.Spec.TrustedCA.Name}
		})},
		{&configv1.Image{ObjectMeta: named(singleton)}, content(func(o *configv1.Image) []any {
			sources := o.Spec.RegistrySources
			return []any{o.Spec.AdditionalTrustedCA.Name, sources.AllowedRegistries, sources.BlockedRegistries,
				sources.InsecureRegistries}
		})},
		{&configv1.ImageDigestMirrorSet{},
			content(func(o *configv1.ImageDigestMirrorSet) []any { return []any{o.Spec} })},
		{&operatorv1alpha1.ImageContentSourcePolicy{},
			content(func(o *operatorv1alpha1.ImageContentSourcePolicy) []any { return []any{o.Spec} })},
		{&configv1.ImageTagMirrorSet{}, content(func(o *configv1.ImageTagMirrorSet) []any { return []any{o.Spec} })},
		{&corev1.ConfigMap{ObjectMeta: in(contract.ConfigNamespace, "")}, content(func(o *corev1.ConfigMap) []any {
			return []any{o.Data, o.BinaryData}
		})},
		{&corev1.ConfigMap{ObjectMeta: in(namespace, "")}, bundleContent},
		{&corev1.Secret{ObjectMeta: in(contract.ConfigNamespace, contract.PullSecret)},
			content(func(o *corev1.Secret) []any {
				return []any{o.Data[corev1.DockerConfigJsonKey]}
			})},
	}
}

// bundleContent is the content of a ConfigMap of the operator's namespace that may hold
// CAs: not the list of hosts, and not what the operator writes for itself and for nodes.
func bundleContent(object client.Object) string {
	switch name := object.GetName(); {
	case strings.HasPrefix(name, contract.ServicesConfigMapPrefix), name == contract.InstancesConfigMap,
		name == contract.PlacesConfigMap, name == contract.ReplacementsConfigMap, name == contract.ReleasedConfigMap,
		name == contract.PayloadSourceConfigMap:
		return ""
	}
	return content(func(o *corev1.ConfigMap) []any {
		return []any{o.Labels[contract.InjectTrustedCALabel], o.Data, o.BinaryData}
	})(object)
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
