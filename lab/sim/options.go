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

// Options configure a new machine. The comment of each field says what its zero value means.
type Options struct {
	// Address is the IPv4 address of the machine's only network card. Default: 127.0.0.1.
	Address netip.Addr
	// Hostname is the DNS host name of the computer. Default: WIN- and eleven letters or digits, like the names that
	// Windows Setup chooses.
	Hostname string
	// DNSSuffix is the primary DNS suffix. Members of a domain have one. Default: none.
	DNSSuffix string
	// MachineID is the MachineGuid in the registry. Default: random.
	MachineID string
	// User is the administrator who logs in over SSH. Default: Administrator. The home directory is C:\Users\<User>.
	User string
	// AuthorizedKeys is the content of C:\ProgramData\ssh\administrators_authorized_keys. Default: empty.
	AuthorizedKeys []byte
	// Shell is the default shell of remote commands. Default: cmd.exe.
	Shell Shell

	// Build and UBR are the version of Windows. Defaults: 20348 and 2700. ProductName is the name of the product.
	// Default: the name that belongs to Build.
	Build, UBR  int
	ProductName string
	// StaticAddress means that the address doesn't come from a DHCP server. DeviceLessNICDisabled means that the
	// registry tells HNS to leave a static address unchanged. Gateways are the network cards that have a default
	// gateway.
	StaticAddress, DeviceLessNICDisabled bool
	Gateways                             []string
	// Client selects a client edition of Windows.
	Client bool
	// Memory and Disk are sizes in bytes. Defaults: 16 GiB and 128 GiB.
	Memory, Disk int64
	// Features lists the optional features that this Windows knows. Default: "Containers", which is enabled.
	Features map[string]winos.FeatureState
	// Roots are certificates in the root store of the new machine, as DER.
	Roots [][]byte

	// Metadata is the handler of the cloud's metadata service at 169.254.169.254. MetadataRouted means that the machine
	// needs a separate route to that address, as on AWS. The image creates the route at its first boot. Later boots and
	// changes of the network remove the route.
	Metadata       http.Handler
	MetadataRouted bool

	// Programs are the implementations of exes. The keys are the base names of the exes in lower case. An exe without
	// an implementation runs as a service that does nothing. The machine looks up wicd-<hex>.exe as
	// windows-instance-config-daemon.exe.
	Programs map[string]Program
	// Default is the implementation of all exes that aren't in Programs. If it is nil, they are services that do
	// nothing.
	Default Program
	// Costs are the durations of operations.
	Costs Costs
	// Log receives the actions of the machine at verbosity 1. By default, nothing is logged.
	Log logr.Logger
}

// Costs are the durations of operations on a machine. Zero means that the operation takes no time. Exception: some
// fields have a default.
type Costs struct {
	// ProcessStart is how long it takes to start a process. Starting PowerShell takes PowerShellStart in addition.
	ProcessStart, PowerShellStart time.Duration
	// FeatureInstall is how long EnableFeature takes.
	FeatureInstall time.Duration
	// ShutdownDelay is the time from the request for a reboot until the shutdown begins. Default: 1 s.
	ShutdownDelay time.Duration
	// Off is the time from the end of the shutdown until services start.
	Off time.Duration
	// ServiceStart is how long a service may be in StartPending. Then it is killed. Default: 30 s.
	ServiceStart time.Duration
	// ServiceKill is how long processes may run after a shutdown has begun. Then they are killed. Default: 5 s.
	ServiceKill time.Duration
	// ServiceControl is how long a stop request waits for the answer of a frozen process. Default: 30 s.
	ServiceControl time.Duration
}
