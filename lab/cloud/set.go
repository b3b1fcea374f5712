package cloud

import (
	"encoding/json"
	"maps"
	"strconv"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/windows-nodes/wmco/internal/contract"
)

// SSHPort is the SSH port of Machines in the lab. Only root can listen on the default port, and a lab can run without
// root.
const SSHPort = 2222

// UserDataSecret is the name of the secret that users of the operator write into their provider specs.
const UserDataSecret = "windows-user-data"

const (
	labelCluster = "machine.openshift.io/cluster-api-cluster"
	labelSet     = "machine.openshift.io/cluster-api-machineset"
)

// NewMachineSet returns a MachineSet of Windows Machines with the common fields of all platforms.
func NewMachineSet(platform configv1.PlatformType, name string, replicas int32) *machinev1beta1.MachineSet {
	selected := SetLabels(name)
	labels := maps.Clone(selected)
	labels[contract.MachineOSLabel] = contract.OSIDWindows
	return &machinev1beta1.MachineSet{
		TypeMeta: metav1.TypeMeta{APIVersion: machinev1beta1.GroupVersion.String(), Kind: "MachineSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: name,
			Labels: map[string]string{labelCluster: "lab"}},
		Spec: machinev1beta1.MachineSetSpec{
			Replicas: &replicas,
			Selector: metav1.LabelSelector{MatchLabels: selected},
			Template: machinev1beta1.MachineTemplateSpec{
				ObjectMeta: machinev1beta1.ObjectMeta{
					Labels: labels, Annotations: map[string]string{contract.SSHPortAnnotation: strconv.Itoa(SSHPort)},
				},
				Spec: NewMachineSpec(platform),
			},
		},
	}
}

// SetLabels returns the labels in the selector of a MachineSet.
func SetLabels(name string) map[string]string {
	return map[string]string{labelCluster: "lab", labelSet: name}
}

// NewMachineSpec returns the spec of a Machine that boots with the operator's user data and becomes a worker.
func NewMachineSpec(platform configv1.PlatformType) machinev1beta1.MachineSpec {
	return machinev1beta1.MachineSpec{
		ObjectMeta:   machinev1beta1.ObjectMeta{Labels: map[string]string{contract.WorkerLabel: ""}},
		ProviderSpec: machinev1beta1.ProviderSpec{Value: providerSpec(platform)},
	}
}

// providerSpec contains only the fields that the lab's cloud reads.
func providerSpec(platform configv1.PlatformType) *runtime.RawExtension {
	kinds := map[configv1.PlatformType][2]string{
		configv1.AWSPlatformType:     {"machine.openshift.io/v1beta1", "AWSMachineProviderConfig"},
		configv1.AzurePlatformType:   {"machine.openshift.io/v1beta1", "AzureMachineProviderSpec"},
		configv1.GCPPlatformType:     {"machine.openshift.io/v1beta1", "GCPMachineProviderSpec"},
		configv1.VSpherePlatformType: {"machine.openshift.io/v1beta1", "VSphereMachineProviderSpec"},
		configv1.NutanixPlatformType: {"machine.openshift.io/v1", "NutanixMachineProviderConfig"},
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": kinds[platform][0], "kind": kinds[platform][1],
		"userDataSecret": map[string]string{"name": UserDataSecret},
	})
	if err != nil {
		panic(err) // maps of strings always marshal
	}
	return &runtime.RawExtension{Raw: raw}
}
