package inventory

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Machine is a host that a cloud made, as far as we look at it, whichever API it comes from.
type Machine struct {
	Name, Namespace string
	UID             types.UID
	CreatedAt       time.Time
	Phase           MachinePhase
	Addresses       []Address
	// ProviderID and NodeRef are empty until somebody knows them.
	ProviderID, NodeRef string
	// Owner is what makes another Machine when this one goes; nil for one that was made by hand.
	Owner *Owner
	// Deleting is set once the Machine is told to go, Ignored when the user wants us to keep away
	// from it, and ManagedBy when another API manages it, of which this object is a copy.
	Deleting, Ignored bool
	ManagedBy         string
	// Port is the annotation contract.SSHPortAnnotation as it stands there; empty without one.
	Port string
}

// Owner is the set that a Machine belongs to.
type Owner struct {
	Kind, Name string
	UID        types.UID
}

// MachinePhase is how far a Machine is.
type MachinePhase string

// Phases of a Machine that we tell apart. Any other is a phase in which there is no host to reach
// yet.
const (
	// MachineProvisioned: the host exists. MachineRunning: it is a node, too.
	MachineProvisioned MachinePhase = "Provisioned"
	MachineRunning     MachinePhase = "Running"
	// MachineFailed: whoever makes hosts gave up on this one.
	MachineFailed MachinePhase = "Failed"
)

// AddressType says what an address is good for.
type AddressType string

// Types of addresses that clouds give.
const (
	AddressInternalIP  AddressType = "InternalIP"
	AddressInternalDNS AddressType = "InternalDNS"
	AddressHostName    AddressType = "Hostname"
	AddressExternalIP  AddressType = "ExternalIP"
	AddressExternalDNS AddressType = "ExternalDNS"
)

// Address is one of a Machine's names or addresses.
type Address struct {
	Type  AddressType
	Value string
}

// MachineEntry is what a Machine tells of its host beside what every entry tells.
type MachineEntry struct {
	UID        types.UID
	CreatedAt  time.Time
	ProviderID string
	// Hostname that the host must be given; empty when it comes with its own.
	Hostname string
	// Addresses are all names and addresses of the host, each once, in the Machine's order.
	Addresses []string
}

// Reading is what a Machine comes to: an entry, something that must happen first, or a problem.
// Exactly one of them is set.
type Reading struct {
	Entry   *Entry
	Wait    string
	Problem *contract.Problem
}

const (
	userAdministrator = "Administrator"
	// userAzure is the account that Azure's images have for whom they are provisioned.
	userAzure = "capi"

	// maxNetBIOS is how long a Windows computer's name may be so that its two forms, DNS and
	// NetBIOS, are one.
	maxNetBIOS = 15
)

// onlyDigits is a name that Windows takes for no computer.
var onlyDigits = regexp.MustCompile(`^[0-9]+$`)

// ReadMachine says what a Machine comes to on a platform. resolves tells which of the names in
// NamesToResolve have an IPv4 address. Whether the Machine leaves or is ignored is the caller's to ask
// first.
func ReadMachine(m Machine, platform contract.Platform, resolves map[string]bool) Reading {
	if m.Phase != MachineProvisioned && m.Phase != MachineRunning {
		return Reading{
			Wait: fmt.Sprintf("its phase is %q, and there is a host to reach in Provisioned and Running only", m.Phase)}
	}
	if len(m.Addresses) == 0 {
		return Reading{Wait: "it has no address yet"}
	}
	address := addressOf(m, resolves)
	if address == "" {
		return Reading{Problem: contract.NewProblem(contract.ReasonMachineAddressUnusable,
			"Machine %s has the addresses %s", m.Name, shownAddresses(m))}
	}
	port, problem := portOf(m)
	if problem != nil {
		return Reading{Problem: problem}
	}
	name, problem := hostnameOf(m, platform)
	if problem != nil {
		return Reading{Problem: problem}
	}
	user := userAdministrator
	if platform == contract.PlatformAzure {
		user = userAzure
	}
	return Reading{Entry: &Entry{
		Name: m.Name, Address: address, User: user, Port: port,
		Machine: &MachineEntry{UID: m.UID, CreatedAt: m.CreatedAt, ProviderID: m.ProviderID, Hostname: name,
			Addresses: allAddresses(m)},
	}}
}

// NamesToResolve are the names by which a Machine may be reached if they have an IPv4 address, best
// first; none when it tells an address.
func NamesToResolve(m Machine) []string {
	var names []string
	for _, kind := range []AddressType{AddressInternalIP, AddressInternalDNS, AddressHostName} {
		for _, a := range m.Addresses {
			switch {
			case a.Type != kind:
			case isIPv4(a.Value):
				if kind == AddressInternalIP {
					return nil
				}
			case kind != AddressInternalIP && validAddress(a.Value) && !slices.Contains(names, a.Value):
				names = append(names, a.Value)
			}
		}
	}
	return names
}

// addressOf picks how to reach the host: its inner IPv4 address, else the first name that resolves
// to one.
func addressOf(m Machine, resolves map[string]bool) string {
	for _, a := range m.Addresses {
		if a.Type == AddressInternalIP && isIPv4(a.Value) {
			return a.Value
		}
	}
	for _, name := range NamesToResolve(m) {
		if resolves[name] {
			return name
		}
	}
	return ""
}

func isIPv4(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is4() && validAddress(text)
}

// allAddresses lists what a certificate of the host may hold. What is neither an address nor a name
// is left out, and so are more than the API keeps.
func allAddresses(m Machine) []string {
	const limit = 32
	var all []string
	for _, a := range m.Addresses {
		_, err := netip.ParseAddr(a.Value)
		if (err == nil || validAddress(a.Value)) && !slices.Contains(all, a.Value) && len(all) < limit {
			all = append(all, a.Value)
		}
	}
	return all
}

func shownAddresses(m Machine) string {
	const few = 8
	var all []string
	for _, a := range m.Addresses[:min(few, len(m.Addresses))] {
		all = append(all, fmt.Sprintf("%.20s %.100q", a.Type, a.Value))
	}
	return strings.Join(all, ", ")
}

func portOf(m Machine) (int32, *contract.Problem) {
	if m.Port == "" {
		return contract.SSHPort, nil
	}
	port, err := strconv.ParseUint(m.Port, 10, 16)
	if err != nil || port == 0 {
		return 0, contract.NewProblem(contract.ReasonMachineAnnotationInvalid,
			"the annotation %s of Machine %s is not a number from 1 to 65535", contract.SSHPortAnnotation, m.Name)
	}
	return int32(port), nil
}

// hostnameOf is the name that the host must be given: on platforms whose hosts are copies of one
// template, all of the same name, that of the Machine. The others give each host a name of its own.
func hostnameOf(m Machine, platform contract.Platform) (string, *contract.Problem) {
	if platform != contract.PlatformVSphere && platform != contract.PlatformNutanix {
		return "", nil
	}
	if len(m.Name) > maxNetBIOS || !label.MatchString(m.Name) || onlyDigits.MatchString(m.Name) {
		return "", contract.NewProblem(contract.ReasonMachineNameInvalid,
			"Machine %s: its name is to be its host's name", m.Name)
	}
	return m.Name, nil
}
