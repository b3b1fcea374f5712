package cloud

import (
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Fault is a way in which a cloud disappoints.
type Fault string

// Faults, for FaultAnnotation.
const (
	FaultNone Fault = ""
	// FaultNeverBoots gives a Machine an address where nobody ever answers.
	FaultNeverBoots Fault = "never-boots"
	// FaultWrongKey boots a host that ignores its user data's key and authorises another.
	FaultWrongKey Fault = "wrong-key"
	// FaultHostKey boots a host that shows another SSH host key than the one in its user data.
	FaultHostKey Fault = "host-key"
	// FaultNoAddress never tells the address.
	FaultNoAddress Fault = "no-address"
	// FaultNoProviderID never tells the provider ID.
	FaultNoProviderID Fault = "no-provider-id"
)

// Annotations of a Machine, or of a MachineSet's template, that the lab's cloud heeds.
const (
	// FaultAnnotation has a Fault.
	FaultAnnotation = "cloud.lab/fault"
	// AddressAnnotation has the address to give to a Machine, though another may have it already.
	AddressAnnotation = "cloud.lab/address"
	// HostnameAnnotation has the name to boot with, also as the metadata service tells it: as a
	// copy of another host's disk does that was not prepared for copying, or a host that lies.
	// Windows is called what stands before the first dot.
	HostnameAnnotation = "cloud.lab/hostname"
	// MachineIDAnnotation has the identity of such a disk's Windows.
	MachineIDAnnotation = "cloud.lab/machine-id"
)

// faultOf a Machine. One that is not Windows has an address and never boots: what runs on it is
// nobody's business here.
func faultOf(machine *machinev1beta1.Machine) Fault {
	if machine.Labels[contract.MachineOSLabel] != contract.OSIDWindows {
		return FaultNeverBoots
	}
	return Fault(machine.Annotations[FaultAnnotation])
}
