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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Inputs implements Source.
func (r *Reader) Inputs() []Input { return Inputs(r.Namespace) }

// Inputs returns the inputs of a Reader for an operator in this namespace. The rendered MachineConfig is not an input:
// if its content changes, its name changes as well. The MachineConfigPool, which is an input, contains this name.
func Inputs(namespace string) []Input {
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	only := in("", singleton)
	return []Input{
		{&configv1.Infrastructure{ObjectMeta: only},
			fields("status.platform", "status.platformStatus", "status.apiServerInternalURI")},
		{&configv1.Network{ObjectMeta: only}, fields("spec")},
		{&operatorv1.Network{ObjectMeta: only},
			fields("spec.defaultNetwork.ovnKubernetesConfig.hybridOverlayConfig")},
		{&machineconfigurationv1.ControllerConfig{ObjectMeta: in("", controllerConfig)},
			fields("spec.kubeAPIServerServingCAData")},
		{&machineconfigurationv1.MachineConfigPool{ObjectMeta: in("", workerPool)},
			fields("status.configuration.name", "spec.configuration.name")},
		{&configv1.Proxy{ObjectMeta: only}, fields("status", "spec.trustedCA")},
		{&configv1.Image{ObjectMeta: only}, fields("spec.additionalTrustedCA", "spec.registrySources")},
		{&configv1.ImageDigestMirrorSet{}, fields("spec")},
		{&operatorv1alpha1.ImageContentSourcePolicy{}, fields("spec")},
		{&configv1.ImageTagMirrorSet{}, fields("spec")},
		{&corev1.ConfigMap{ObjectMeta: in(contract.ConfigNamespace, "")}, fields("data", "binaryData")},
		{&corev1.ConfigMap{ObjectMeta: in(namespace, "")}, bundleContent},
		{&corev1.Secret{ObjectMeta: in(contract.ConfigNamespace, contract.PullSecret)}, fields("data")},
	}
}

// bundleContent is the Content function for ConfigMaps in the operator's namespace, which may contain CAs. The list of
// hosts, and ConfigMaps that the operator itself writes, have no content.
func bundleContent(object client.Object) string {
	switch name := object.GetName(); {
	case strings.HasPrefix(name, contract.ServicesConfigMapPrefix), name == contract.InstancesConfigMap,
		name == contract.SlotsConfigMap, name == contract.ReplacementsConfigMap, name == contract.ReleasedConfigMap,
		name == contract.PayloadSourceConfigMap:
		return ""
	}
	return fields("metadata.labels", "data", "binaryData")(object)
}

// fields returns a Content function for an Input. The function returns the values of the fields with these paths.
func fields(paths ...string) func(client.Object) string {
	return func(object client.Object) string {
		all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return object.GetResourceVersion()
		}
		values := make([]any, len(paths))
		for i, path := range paths {
			// If a parent field is null, NestedFieldNoCopy returns an error. Then the value is nil.
			values[i], _, _ = unstructured.NestedFieldNoCopy(all, strings.Split(path, ".")...)
		}
		text, err := json.Marshal(values)
		if err != nil {
			return object.GetResourceVersion()
		}
		return string(text)
	}
}
