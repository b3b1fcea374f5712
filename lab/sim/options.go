package sim

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Shell is the default shell of the machine's SSH server.
type Shell string

// Default shells.
const (
	ShellCmd        Shell = "cmd.exe"
	ShellPowerShell Shell = "powershell.exe"
)

// Options describe a machine when it is made. The zero value of each field means what its comment
// says.
type Options struct {
	// Address is the IPv4 address of the machine's only network card; 127.0.0.1 if not set.
	Address netip.Addr
	// Hostname is the computer's DNS host name; WIN- and eleven letters or digits if empty, as
	// Windows Setup does it.
	Hostname string
	// DNSSuffix is its primary DNS suffix, as a member of a domain has one.
	DNSSuffix string
	// MachineID is the MachineGuid; random if empty.
	MachineID string
	// User is the administrator who logs in over SSH; Administrator if empty. The home directory is
	// C:\Users\<User>.
	User string
	// AuthorizedKeys is written to C:\ProgramData\ssh\administrators_authorized_keys.
	AuthorizedKeys []byte
	// Shell is the default shell of remote commands; cmd.exe if empty.
	Shell Shell

	// Build and UBR are the version of Windows; 20348 and 2700 if 0. ProductName is made up from
	// Build if empty.
	Build, UBR  int
	ProductName string
	// StaticAddress says that no DHCP server gave its address, DeviceLessNICDisabled that HNS is set
	// to let it be. Gateways are the network cards with a default gateway.
	StaticAddress, DeviceLessNICDisabled bool
	Gateways                             []string
	// Client makes it a client edition of Windows.
	Client bool
	// Memory and Disk are sizes in bytes; 16 GiB and 128 GiB if 0.
	Memory, Disk int64
	// Features lists the optional features that this Windows knows; "Containers", enabled, if nil.
	Features map[string]winos.FeatureState
	// Roots are certificates (DER) in the root store from the start.
	Roots [][]byte

	// Metadata answers at 169.254.169.254, as a cloud does; MetadataRouted says that packets get
	// there only by a route to that address, which the image sets up at its first boot, and which
	// later boots and network changes lose, as on AWS.
	Metadata       http.Handler
	MetadataRouted bool

	// Programs are what the exes do, by the lower-case base name of the exe. An exe without a
	// Program runs as a service that does nothing. wicd-<hex>.exe is looked up as
	// windows-instance-config-daemon.exe.
	Programs map[string]Program
	// Default is what exes do that have no Program; a service that does nothing if nil.
	Default Program
	// Costs are how long things take.
	Costs Costs
	// Log receives what the machine does, at V(1); nothing is logged if it is not set.
	Log logr.Logger
}

// Costs are how long things take on a machine. 0 means no time, except where a default is named.
type Costs struct {
	// ProcessStart is spent on each start of a process; PowerShellStart on top of it when that is
	// PowerShell.
	ProcessStart, PowerShellStart time.Duration
	// FeatureInstall is spent by EnableFeature.
	FeatureInstall time.Duration
	// ShutdownDelay lies between asking for a reboot and its begin; 1 s if 0.
	ShutdownDelay time.Duration
	// Off is the time from going down until services start again.
	Off time.Duration
	// ServiceStart is how long a service may stay in StartPending before it is killed; 30 s if 0.
	ServiceStart time.Duration
	// ServiceKill is how long processes may go on at shutdown before they are killed; 5 s if 0.
	ServiceKill time.Duration
	// ServiceControl is how long a request to stop waits for a process that is frozen; 30 s if 0.
	ServiceControl time.Duration
}
