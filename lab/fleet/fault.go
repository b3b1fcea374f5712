package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Fault is a defect that prevents a host from becoming a node.
type Fault string

// Faults.
const (
	FaultNone        Fault = ""
	FaultAuth        Fault = "auth"
	FaultUnreachable Fault = "unreachable"
	FaultHung        Fault = "hung"
	FaultHostKey     Fault = "hostkey"
	FaultBuild       Fault = "build"
	FaultDisk        Fault = "disk"
	FaultClock       Fault = "clock"
	FaultHostname    Fault = "hostname"
	FaultPort        Fault = "port"
)

// The function reasons maps each fault to the reason that the operator should report.
func reasons() map[Fault]contract.Reason {
	return map[Fault]contract.Reason{
		FaultAuth: contract.ReasonKeyRefused, FaultUnreachable: contract.ReasonUnreachable,
		FaultHung:    contract.ReasonNotSSH,
		FaultHostKey: contract.ReasonHostKeyMismatch, FaultBuild: contract.ReasonBuildUnsupported,
		FaultDisk:  contract.ReasonDiskFull,
		FaultClock: contract.ReasonClockSkewed, FaultPort: contract.ReasonPortInUse,
		FaultHostname: contract.ReasonHostnameInvalid,
	}
}

// Reason returns the reason that the operator should report for a host with this fault.
func (f Fault) Reason() contract.Reason { return reasons()[f] }

// ParseFaults parses a comma-separated list of faults.
func ParseFaults(list string) ([]Fault, error) {
	var faults []Fault
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if _, ok := reasons()[Fault(name)]; !ok {
			return nil, fmt.Errorf("fault %q is unknown; the faults are %s", name, strings.Join(FaultNames(), ", "))
		}
		faults = append(faults, Fault(name))
	}
	return faults, nil
}

// FaultNames lists all faults, sorted.
func FaultNames() []string {
	names := []string{}
	for f := range reasons() {
		names = append(names, string(f))
	}
	slices.Sort(names)
	return names
}

// OfMachines reports whether only a simulated machine can have this fault. All other faults are faults of the SSH
// server, so any host with an SSH server can have them.
func (f Fault) OfMachines() bool {
	switch f {
	case FaultBuild, FaultDisk, FaultClock, FaultPort, FaultHostname:
		return true
	default:
		return false
	}
}

// OfServers reports whether a host needs an SSH server to have this fault.
func (f Fault) OfServers() bool { return f != FaultNone && !f.OfMachines() }

// Break gives a host a fault. If the host can't have this fault, Break does nothing. FaultHostKey changes only the
// result of Entry. FaultHostname has no effect here: it must be set when the machine is created.
func (h *Host) Break(fault Fault) {
	if h.Machine == nil && fault.OfMachines() || h.Server == nil && fault.OfServers() {
		return
	}
	h.Fault = fault
	switch fault {
	case FaultAuth:
		h.Server.Change(func(s *sshd.Settings) { s.Faults.RefuseKeys = true })
	case FaultUnreachable:
		h.Server.Change(func(s *sshd.Settings) { s.Faults.Closed = true })
	case FaultHung:
		h.Server.Change(func(s *sshd.Settings) { s.Faults.Hung = true })
	case FaultBuild:
		h.Machine.SetBuild(14393, 1)
	case FaultDisk:
		h.Machine.SetDiskFree(64 << 20)
	case FaultClock:
		h.Machine.SetClockOffset(26 * time.Hour)
	case FaultPort:
		h.Machine.SetForeignPort(contract.KubeletPort, `C:\Program Files\Other\other.exe`)
	}
}

// Mend removes the fault of a host.
func (h *Host) Mend() {
	switch h.Fault {
	case FaultBuild:
		h.Machine.SetBuild(20348, 2700)
	case FaultDisk:
		h.Machine.SetDiskFree(100 << 30)
	case FaultClock:
		h.Machine.SetClockOffset(0)
	case FaultPort:
		h.Machine.SetForeignPort(contract.KubeletPort, "")
	default:
		if h.Server != nil {
			h.Server.Change(func(s *sshd.Settings) { s.Faults = sshd.Faults{} })
		}
	}
	h.Fault = FaultNone
}

// nodeName returns the name of the Node of a host with this host name.
func nodeName(hostname string) string { return strings.ToLower(hostname) }
