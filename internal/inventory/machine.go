package inventory

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Machine contains the fields that the operator reads from a Machine of any API.
type Machine struct {
	Name, Namespace string
	UID             types.UID
	CreatedAt       time.Time
	Phase           MachinePhase
	Addresses       []corev1.NodeAddress
	// ProviderID and NodeRef are empty until they are known.
	ProviderID, NodeRef string
	// Owner is the set that replaces this Machine if it is deleted. It is nil for a Machine that a user created.
	Owner *Owner
	// Deleting: the Machine is being deleted. Ignored: the user wants the operator to ignore the Machine. ManagedBy is
	// another API that manages the Machine, or empty. If ManagedBy is set, this object is a copy of that API's Machine.
	Deleting, Ignored bool
	ManagedBy         string
	// Port is the value of the annotation contract.SSHPortAnnotation, not parsed. It is empty without this annotation.
	Port string
}

// Owner is the set that a Machine belongs to.
type Owner struct {
	Kind string
	UID  types.UID
}

// MachinePhase is the phase of a Machine.
type MachinePhase string

// Phases of a Machine that has a host. In every other phase, the operator can't reach a host yet.
const (
	// MachineProvisioned: the host exists. MachineRunning: the host exists and is a node.
	MachineProvisioned MachinePhase = "Provisioned"
	MachineRunning     MachinePhase = "Running"
)

// MachineEntry is the part of an Entry that only the host of a Machine has.
type MachineEntry struct {
	UID        types.UID
	ProviderID string
	// Hostname is the name that the host must get. It is empty if the host keeps its own name.
	Hostname string
	// Addresses are all names and addresses of the host, without duplicates, in the same order as in the Machine.
	Addresses []string
}

// Reading is the result of ReadMachine. Exactly one field is set: an entry, a reason to wait, or a problem.
type Reading struct {
	Entry   *Entry
	Wait    string
	Problem *contract.Problem
}

const (
	userAdministrator = "Administrator"
	// userAzure is the name of the administrator's account on hosts that Azure creates.
	userAzure = "capi"

	// maxNetBIOS is the maximum length of a Windows computer's name if its NetBIOS name must equal its DNS name.
	maxNetBIOS = 15
)

// onlyDigits matches names that Windows refuses as a computer's name.
var onlyDigits = regexp.MustCompile(`^[0-9]+$`)

// ReadMachine returns the entry for a Machine on a platform. For each of NamesToResolve, `resolves` is true if the name
// has an IPv4 address. The caller must first check whether the Machine is being deleted or ignored.
func ReadMachine(m Machine, platform contract.Platform, resolves map[string]bool) Reading {
	if m.Phase != MachineProvisioned && m.Phase != MachineRunning {
		return Reading{
			Wait: fmt.Sprintf("its phase is %q, and only Provisioned and Running Machines have a host to reach",
				m.Phase)}
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
		Machine: &MachineEntry{UID: m.UID, ProviderID: m.ProviderID, Hostname: name,
			Addresses: allAddresses(m)},
	}}
}

// NamesToResolve lists the names of a Machine that may have an IPv4 address in DNS. The best name comes first. If the
// Machine has an internal IPv4 address, the list is empty.
func NamesToResolve(m Machine) []string {
	var names []string
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeInternalDNS, corev1.NodeHostName} {
		for _, a := range m.Addresses {
			switch {
			case a.Type != kind:
			case isIPv4(a.Address):
				if kind == corev1.NodeInternalIP {
					return nil
				}
			case kind != corev1.NodeInternalIP && validAddress(a.Address) && !slices.Contains(names, a.Address):
				names = append(names, a.Address)
			}
		}
	}
	return names
}

// addressOf returns the internal IPv4 address for SSH, or else the first name that resolves to an IPv4 address, or "".
func addressOf(m Machine, resolves map[string]bool) string {
	for _, a := range m.Addresses {
		if a.Type == corev1.NodeInternalIP && isIPv4(a.Address) {
			return a.Address
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

// allAddresses lists the names and addresses that a certificate of the host may contain. It omits invalid ones. If
// there are more than the API allows, it omits the last ones.
func allAddresses(m Machine) []string {
	const limit = 32
	var all []string
	for _, a := range m.Addresses {
		_, err := netip.ParseAddr(a.Address)
		if (err == nil || validAddress(a.Address)) && !slices.Contains(all, a.Address) && len(all) < limit {
			all = append(all, a.Address)
		}
	}
	return all
}

func shownAddresses(m Machine) string {
	const few = 8
	var all []string
	for _, a := range m.Addresses[:min(few, len(m.Addresses))] {
		all = append(all, fmt.Sprintf("%.20s %.100q", a.Type, a.Address))
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

// hostnameOf returns the name that a host must get. On platforms where all hosts are copies of one template, the host
// gets the Machine's name, because the copies have the same name. On other platforms, hosts keep their own names, and
// hostnameOf returns "".
func hostnameOf(m Machine, platform contract.Platform) (string, *contract.Problem) {
	if platform != contract.PlatformVSphere && platform != contract.PlatformNutanix {
		return "", nil
	}
	if len(m.Name) > maxNetBIOS || !label.MatchString(m.Name) || onlyDigits.MatchString(m.Name) {
		return "", contract.NewProblem(contract.ReasonMachineNameInvalid,
			"Machine %s: its host must get its name, which is not a valid host name", m.Name)
	}
	return m.Name, nil
}
