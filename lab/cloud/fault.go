package cloud

import (
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Fault is an injected fault of the cloud.
type Fault string

// Faults for FaultAnnotation.
const (
	FaultNone Fault = ""
	// FaultNeverBoots gives a Machine an address that never answers.
	FaultNeverBoots Fault = "never-boots"
	// FaultWrongKey boots a host that ignores the key in its user data and authorizes another key.
	FaultWrongKey Fault = "wrong-key"
	// FaultHostKey boots a host that presents an SSH host key that differs from the key in its user data.
	FaultHostKey Fault = "host-key"
	// FaultNoAddress never reports the address.
	FaultNoAddress Fault = "no-address"
	// FaultNoProviderID never reports the provider ID.
	FaultNoProviderID Fault = "no-provider-id"
)

// The lab's cloud evaluates these annotations of a Machine, or of the template of a MachineSet.
const (
	// FaultAnnotation contains a Fault.
	FaultAnnotation = "cloud.lab/fault"
	// AddressAnnotation contains the address of a Machine, even if another Machine already has the address.
	AddressAnnotation = "cloud.lab/address"
	// HostnameAnnotation contains the host name for the boot, which the metadata service also reports. It imitates a
	// disk that was copied from another host without preparation, or a host that reports a false name. The Windows host
	// name is the part before the first dot.
	HostnameAnnotation = "cloud.lab/hostname"
	// MachineIDAnnotation contains the machine ID of such a copied disk.
	MachineIDAnnotation = "cloud.lab/machine-id"
)

// faultOf returns the fault of a Machine. A Machine without Windows gets an address and never boots, because the lab
// doesn't simulate other operating systems.
func faultOf(machine *machinev1beta1.Machine) Fault {
	if machine.Labels[contract.MachineOSLabel] != contract.OSIDWindows {
		return FaultNeverBoots
	}
	return Fault(machine.Annotations[FaultAnnotation])
}
