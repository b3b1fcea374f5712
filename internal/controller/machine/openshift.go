package machine

import (
	"encoding/json"
	"fmt"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// AddToScheme adds the types of the Machine API to a scheme.
func AddToScheme(scheme *runtime.Scheme) error { return machinev1beta1.Install(scheme) }

// windows selects the Machines that run Windows.
func windows() labels.Set { return labels.Set{contract.MachineOSLabel: contract.OSIDWindows} }

// cached configures the cache: Machines that run Windows, and MachineSets, without the fields that only clouds read.
func cached() map[client.Object]ctrlcache.ByObject {
	inNamespace := map[string]ctrlcache.Config{contract.MachineAPINamespace: {}}
	return map[client.Object]ctrlcache.ByObject{
		&machinev1beta1.Machine{}: {Namespaces: inNamespace, Label: labels.SelectorFromSet(windows()),
			Transform: slim},
		&machinev1beta1.MachineSet{}: {Namespaces: inNamespace, Transform: slim},
	}
}

var _ cache.TransformFunc = slim

// slim drops the fields of a Machine or a set that nobody here reads.
func slim(object any) (any, error) {
	switch o := object.(type) {
	case *machinev1beta1.Machine:
		o.ManagedFields, o.Spec.ProviderSpec, o.Status.Conditions = nil, machinev1beta1.ProviderSpec{}, nil
		o.Status.ProviderStatus, o.Status.LastOperation = nil, nil
	case *machinev1beta1.MachineSet:
		raw, err := json.Marshal(readProviderSpec(o.Spec.Template.Spec.ProviderSpec))
		if err != nil {
			return nil, fmt.Errorf("keeping the user data of MachineSet %s: %w", o.Name, err)
		}
		o.ManagedFields, o.Spec.Template.Spec, o.Status.Conditions = nil, machinev1beta1.MachineSpec{}, nil
		o.Spec.Template.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: raw}
	}
	return object, nil
}

// providerSpec is the part of a provider spec that all clouds have.
type providerSpec struct {
	UserDataSecret struct {
		Name string `json:"name"`
	} `json:"userDataSecret"`
}

// readProviderSpec returns an empty spec if it can't be read.
func readProviderSpec(of machinev1beta1.ProviderSpec) providerSpec {
	var spec providerSpec
	if of.Value == nil || json.Unmarshal(of.Value.Raw, &spec) != nil {
		return providerSpec{}
	}
	return spec
}

// userDataOf names the Secret from which the Machines of a set get their user data; empty if that can't be read.
func userDataOf(set *machinev1beta1.MachineSet) string {
	return readProviderSpec(set.Spec.Template.Spec.ProviderSpec).UserDataSecret.Name
}

// fromOpenShift reads a Machine. Every field of it may be absent.
func fromOpenShift(m *machinev1beta1.Machine) inventory.Machine {
	machine := inventory.Machine{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, CreatedAt: m.CreationTimestamp.Time,
		Deleting: !m.DeletionTimestamp.IsZero(), Ignored: m.Labels[contract.IgnoreLabel] == "true",
		Port: m.Annotations[contract.SSHPortAnnotation], Addresses: m.Status.Addresses,
	}
	if m.Status.Phase != nil {
		machine.Phase = inventory.MachinePhase(*m.Status.Phase)
	}
	if m.Spec.ProviderID != nil {
		machine.ProviderID = *m.Spec.ProviderID
	}
	if m.Status.NodeRef != nil {
		machine.NodeRef = m.Status.NodeRef.Name
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		machine.Owner = &inventory.Owner{Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
	}
	if by := m.Status.AuthoritativeAPI; by != "" && by != machinev1beta1.MachineAuthorityMachineAPI {
		machine.ManagedBy = string(by)
	}
	return machine
}
