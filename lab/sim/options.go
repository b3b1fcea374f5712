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

// Options describe a new machine. The comment of each field names the meaning of its zero value.
type Options struct {
	// Address is the IPv4 address of the machine's only network card; 127.0.0.1 if not set.
	Address netip.Addr
	// Hostname is the DNS host name of the computer. If empty, it is WIN- and eleven letters or digits, like the name
	// that Windows Setup chooses.
	Hostname string
	// DNSSuffix is the primary DNS suffix, which a member of a domain has.
	DNSSuffix string
	// MachineID is the MachineGuid. Default: random.
	MachineID string
	// User is the administrator who logs in over SSH. Default: Administrator. The home directory is C:\Users\<User>.
	User string
	// AuthorizedKeys is written to C:\ProgramData\ssh\administrators_authorized_keys.
	AuthorizedKeys []byte
	// Shell is the default shell of remote commands; cmd.exe if empty.
	Shell Shell

	// Build and UBR are the version of Windows. Defaults: 20348 and 2700. If ProductName is empty, it is derived from
	// Build.
	Build, UBR  int
	ProductName string
	// StaticAddress means that the address doesn't come from a DHCP server. DeviceLessNICDisabled means that HNS is
	// configured to leave a static address unchanged. Gateways are the network cards with a default gateway.
	StaticAddress, DeviceLessNICDisabled bool
	Gateways                             []string
	// Client selects a client edition of Windows.
	Client bool
	// Memory and Disk are sizes in bytes. Defaults: 16 GiB and 128 GiB.
	Memory, Disk int64
	// Features lists the optional features that this Windows knows. Default: "Containers", which is enabled.
	Features map[string]winos.FeatureState
	// Roots are certificates (DER) in the root store from the start.
	Roots [][]byte

	// Metadata serves 169.254.169.254, like a cloud. MetadataRouted means that packets reach it only through a route to
	// that address, like on AWS. The image creates the route at its first boot. Later boots and network changes remove
	// it.
	Metadata       http.Handler
	MetadataRouted bool

	// Programs are the implementations of the exes, by the lower-case base name of the exe. An exe without a Program
	// runs as a service that does nothing. wicd-<hex>.exe is looked up as windows-instance-config-daemon.exe.
	Programs map[string]Program
	// Default implements all exes without a Program. If nil, it is a service that does nothing.
	Default Program
	// Costs are the durations of operations.
	Costs Costs
	// Log receives the actions of the machine at V(1). If not set, nothing is logged.
	Log logr.Logger
}

// Costs are the durations of operations on a machine. 0 means no time, unless a default is named.
type Costs struct {
	// ProcessStart is the duration of each start of a process. PowerShell takes PowerShellStart in addition.
	ProcessStart, PowerShellStart time.Duration
	// FeatureInstall is the duration of EnableFeature.
	FeatureInstall time.Duration
	// ShutdownDelay is the time between the request for a reboot and its begin. Default: 1 s.
	ShutdownDelay time.Duration
	// Off is the time between shutdown and the start of services.
	Off time.Duration
	// ServiceStart is how long a service may stay in StartPending before it is killed. Default: 30 s.
	ServiceStart time.Duration
	// ServiceKill is the time that processes get at shutdown before they are killed. Default: 5 s.
	ServiceKill time.Duration
	// ServiceControl is how long a stop request waits for a frozen process. Default: 30 s.
	ServiceControl time.Duration
}
