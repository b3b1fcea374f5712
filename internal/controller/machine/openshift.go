package machine

import (
	"encoding/json"

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

func windows() labels.Set { return labels.Set{contract.MachineOSLabel: contract.OSIDWindows} }

// cached configures a cache of Windows Machines, without the fields that only clouds read, and of all MachineSets.
func cached() map[client.Object]ctrlcache.ByObject {
	inNamespace := map[string]ctrlcache.Config{contract.MachineAPINamespace: {}}
	return map[client.Object]ctrlcache.ByObject{
		&machinev1beta1.Machine{}: {Namespaces: inNamespace, Label: labels.SelectorFromSet(windows()),
			Transform: slim},
		&machinev1beta1.MachineSet{}: {Namespaces: inNamespace, Transform: ctrlcache.TransformStripManagedFields()},
	}
}

var _ cache.TransformFunc = slim

func slim(object any) (any, error) {
	if m, ok := object.(*machinev1beta1.Machine); ok {
		m.ManagedFields, m.Spec.ProviderSpec, m.Status.Conditions = nil, machinev1beta1.ProviderSpec{}, nil
		m.Status.ProviderStatus, m.Status.LastOperation = nil, nil
	}
	return object, nil
}

// userDataOf returns the name of the Secret with the user data of a set's Machines, or "". All clouds have this field.
func userDataOf(set *machinev1beta1.MachineSet) string {
	var spec struct {
		UserDataSecret struct {
			Name string `json:"name"`
		} `json:"userDataSecret"`
	}
	if raw := set.Spec.Template.Spec.ProviderSpec.Value; raw == nil || json.Unmarshal(raw.Raw, &spec) != nil {
		return ""
	}
	return spec.UserDataSecret.Name
}

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
		machine.Owner = &inventory.Owner{Kind: owner.Kind, UID: owner.UID}
	}
	if by := m.Status.AuthoritativeAPI; by != "" && by != machinev1beta1.MachineAuthorityMachineAPI {
		machine.ManagedBy = string(by)
	}
	return machine
}
