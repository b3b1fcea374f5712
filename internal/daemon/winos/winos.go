// Package winos answers what the daemon may do to the Windows machine that it runs on, as small
// interfaces, with the Windows API behind them on Windows.
//
// The daemon's verbs and reconcile loop use it; the simulated machine implements the same
// interfaces and passes the same suite (winostest). It holds no decision, and nothing in it starts
// a process but Programs, which is for trying out the daemon's own successor.
package winos

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Errors that implementations normalise to; callers test with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	// ErrInUse says that a file is open without sharing, such as the exe of a running process, or a
	// service is still stopping.
	ErrInUse = errors.New("in use")
	// ErrInvalidName says that Windows does not allow a path or name.
	ErrInvalidName = errors.New("invalid name")
	ErrNoSpace     = errors.New("no space left on the disk")
	// ErrStartFailed says that a service's process ended or reported an error while it started.
	ErrStartFailed = errors.New("service did not start")
	ErrDenied      = errors.New("access denied")
	// ErrUnsupported says that this system lacks the facility (no HNS, for example).
	ErrUnsupported = errors.New("unsupported on this system")
)

// Host is one Windows machine.
type Host struct {
	Services    Services
	Files       Files
	Environment Environment
	Trust       Trust
	System      System
	Network     Network
	Routes      Routes
	Logs        Logs
	Programs    Programs
}

// ServiceConfig is what the service manager knows of a service.
type ServiceConfig struct {
	Name        string
	Description string
	// Command is the full command line of the service's process.
	Command      string
	Dependencies []string
	// Environment of the service's process, beside the system's.
	Environment map[string]string
	// Recovery lists the delays before restarts after the first, second, … unexpected end;
	// RecoveryReset the time after which the count starts anew.
	Recovery      []time.Duration
	RecoveryReset time.Duration
}

// ServiceState is the state of a service.
type ServiceState string

// States, after SERVICE_STATUS_PROCESS.
const (
	ServiceStopped      ServiceState = "Stopped"
	ServiceStartPending ServiceState = "StartPending"
	ServiceStopPending  ServiceState = "StopPending"
	ServiceRunning      ServiceState = "Running"
	ServicePaused       ServiceState = "Paused"
)

// Service is a service's configuration and state.
type Service struct {
	ServiceConfig
	State ServiceState
	// PID of the process, 0 when there is none. A stopped service may still have one for a moment.
	PID uint32
	// NoAutoStart says that its start type is not Automatic, so it does not start at boot; one that
	// is disabled does not start at all.
	NoAutoStart bool
}

// Services is the service manager. All our services start automatically at boot. Errors of Start and
// Stop say what was done with which service.
type Services interface {
	// List names all services of the machine.
	List(ctx context.Context) ([]string, error)
	// Get answers ErrNotFound for a service that does not exist.
	Get(ctx context.Context, name string) (Service, error)
	// Apply creates a service or changes its configuration, start type included, and never starts or
	// stops it. Repeating it changes nothing.
	Apply(ctx context.Context, config ServiceConfig) error
	// Start returns when the service runs; one that runs already is left alone. Its dependencies
	// are started by the service manager.
	Start(ctx context.Context, name string) error
	// Stop stops the running dependants, then the service, and returns when their processes have
	// ended. A stopped service is left alone.
	Stop(ctx context.Context, name string) error
	// Dependants lists the services that Stop would stop for this one, each before those that it needs.
	Dependants(ctx context.Context, name string) ([]string, error)
	// Delete removes a stopped service. Deleting what does not exist is fine.
	Delete(ctx context.Context, name string) error
	// DeleteAtStop has a service go when it has stopped and nobody has it open, which it does not wait for; until
	// then nobody can start or install it. Repeating it changes nothing.
	DeleteAtStop(ctx context.Context, name string) error
}

// Access says who may open a file or directory.
type Access int

// Kinds of access.
const (
	// AccessInherit takes what the directory gives.
	AccessInherit Access = iota
	// AccessAdministrators lets only Administrators and SYSTEM in; inheritance is off.
	AccessAdministrators
	// AccessUsers is for directories: inheritance is off, and users may do in it what they may in C:\ of a server,
	// read and keep what they make there. What has it is AccessInherit in a FileInfo.
	AccessUsers
)

// FileInfo is what is known of a file.
type FileInfo struct {
	Name    string
	Size    int64
	Dir     bool
	ModTime time.Time
	Access  Access
	// Foreign says that somebody who is no administrator owns it, or may change its rights, or take
	// it or what lies in it away. It is known from Stat only.
	Foreign bool
}

// Files is the file system. Paths are absolute, with a drive letter and backslashes. Errors wrap
// fs.ErrNotExist, ErrInUse, ErrInvalidName, ErrNoSpace or ErrDenied.
type Files interface {
	Open(path string) (io.ReadCloser, error)
	// Create makes or truncates a file; Close reports what writing could not, after flushing to
	// disk.
	Create(path string, access Access) (io.WriteCloser, error)
	// Rename replaces an existing file at to; ErrInUse when that is the exe of a running process.
	// (Moving a running exe away is allowed.)
	Rename(from, to string) error
	// Remove deletes a file or an empty directory. Removing what does not exist is fine.
	Remove(path string) error
	// RemoveAll deletes a file, or a directory with everything in it, and goes on after an error. Of a
	// link or junction in it the link is deleted, also of one that somebody puts in the place of a
	// directory meanwhile; nobody but administrators may be able to replace what is above path.
	// Removing what does not exist is fine.
	RemoveAll(path string) error
	// Stat answers fs.ErrNotExist for what does not exist.
	Stat(path string) (FileInfo, error)
	List(dir string) ([]FileInfo, error)
	// MkdirAll makes a directory and its parents. access is for those that it makes.
	MkdirAll(path string, access Access) error
	// Restrict gives a file or directory that exists the rights of AccessAdministrators, whatever rights it had. What
	// lies in a directory keeps its own rights, except those that it inherits. Repeating it changes nothing.
	Restrict(path string) error
}

// Environment is the system's environment in the registry, which services get when they start.
type Environment interface {
	All(ctx context.Context) (map[string]string, error)
	// Set and Unset broadcast the change (WM_SETTINGCHANGE). Names are case-insensitive.
	Set(ctx context.Context, name, value string) error
	Unset(ctx context.Context, name string) error
}

// Trust is the root certificate store of the local machine.
type Trust interface {
	// List gives the DER of each certificate, including those that do not parse.
	List(ctx context.Context) ([][]byte, error)
	// Add and Remove work on exactly one certificate, by its content. Repeating them changes
	// nothing.
	Add(ctx context.Context, der []byte) error
	Remove(ctx context.Context, der []byte) error
}

// FeatureState is the state of a Windows feature.
type FeatureState string

// Feature states, after DismPackageFeatureState.
const (
	FeatureAbsent  FeatureState = "Absent"
	FeaturePending FeatureState = "Pending" // installed with the next boot
	FeatureEnabled FeatureState = "Enabled"
)

// Facts describe the machine.
type Facts struct {
	// Hostname is the computer's DNS host name, as Windows writes it.
	Hostname string
	// FullName is the host name with the computer's primary DNS suffix, if it has one, as in a domain.
	FullName string
	// MachineID is the MachineGuid of the registry.
	MachineID string
	// BootID differs with every boot.
	BootID      string
	ProductName string
	// Server is false for client editions of Windows.
	Server bool
	Build  int
	UBR    int
	// Admin says whether the process has administrators' rights.
	Admin  bool
	Memory int64 // bytes
	// DiskFree and DiskTotal are about the system drive, in bytes.
	DiskFree, DiskTotal int64
	// StaticAddress says that no DHCP server gave the address of the interface that has the default
	// route, DeviceLessNICDisabled that HNS is set to let such an address be. Source: the
	// prerequisites of bring-your-own hosts in OpenShift's Windows documentation.
	StaticAddress, DeviceLessNICDisabled bool
	// Gateways are the connected interfaces that have an IPv4 default route.
	Gateways []string
	// RebootPending says that Windows itself asks for a reboot.
	RebootPending bool
	// RebootSigns are the reasons of Windows' own parts for that, sorted; a new host name is none.
	RebootSigns []string
	// ReplacedAtBoot are files that the next boot puts in their places, because they are in use.
	// What it only deletes is not meant: installers and updates leave such behind all the time, on
	// some machines at every boot, and nothing waits for it.
	ReplacedAtBoot []string
}

// Signs of a reboot that Windows waits for, as in Facts.RebootSigns.
const (
	SignServicing = "ComponentBasedServicing"
	SignUpdate    = "WindowsUpdate"
)

// System is the machine as a whole.
type System interface {
	Facts(ctx context.Context) (Facts, error)
	// Now is the wall clock, without a monotonic reading: that stands still while a virtual machine is
	// paused.
	Now() time.Time
	// SetHostname takes effect with the next boot.
	SetHostname(ctx context.Context, name string) error
	Feature(ctx context.Context, name string) (FeatureState, error)
	// EnableFeature may take minutes. It may need a reboot: see Feature.
	EnableFeature(ctx context.Context, name string) error
	// Reboot asks for a restart and returns before it happens.
	Reboot(ctx context.Context, why string) error
	// ExcludeFromDefender lets Windows Defender skip the process of an exe, where Defender is
	// there. Repeating it changes nothing.
	ExcludeFromDefender(ctx context.Context, exe string) error
}

// HNSNetwork is a network of the host network service.
type HNSNetwork struct {
	ID, Name     string
	Subnet       netip.Prefix
	ManagementIP netip.Addr
	// VNI is the number that an overlay network has in VXLAN; 0 where HNS tells none.
	VNI uint32
}

// Network is the machine's network. Methods about HNS answer ErrUnsupported where it is absent,
// and may outlast their context: see WithTimeouts.
type Network interface {
	// NodeIP is the IPv4 address of the interface that holds the default route.
	NodeIP(ctx context.Context) (netip.Addr, error)
	// Listening lists the TCP ports that are listened on and the name of the program, as far as it
	// is known.
	Listening(ctx context.Context) (map[int]string, error)
	// HNSNetwork answers ErrNotFound while there is none of that name.
	HNSNetwork(ctx context.Context, name string) (HNSNetwork, error)
	// EnsureEndpoint finds the HNS endpoint of that name on a network, or else one without a name that
	// has the address. If there is neither, it creates one: with that address, if it is valid and no
	// other endpoint has it. It attaches the endpoint to the host's compartment and returns its IPv4
	// address.
	EnsureEndpoint(ctx context.Context, network, endpoint string, address netip.Addr) (netip.Addr, error)
	// RemoveHNSNetwork removes the network of that name with its endpoints. Removing what does not
	// exist is fine.
	RemoveHNSNetwork(ctx context.Context, name string) error
	// Listen listens on a TCP port of the loopback address, until it is closed. A port that
	// somebody listens on is ErrInUse.
	Listen(ctx context.Context, port int) (net.Listener, error)
	// Dial connects to a TCP port of an address from this machine, past any proxy.
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Route is one row of the routing table.
type Route struct {
	Destination netip.Prefix
	// NextHop is unspecified where the destination is on the link.
	NextHop netip.Addr
	// Interface is its name, as Windows shows it.
	Interface string
	// Metric is the sum of those of route and interface, which is what Windows compares.
	Metric uint32
}

// Routes is the routing table of IPv4. It changes routes to single addresses only.
type Routes interface {
	// Addresses lists the IPv4 addresses of the machine's interfaces that have a link, without those that
	// Windows does not use yet.
	Addresses(ctx context.Context) ([]netip.Addr, error)
	// Table lists the routes of interfaces that are there, those to the widest destination first.
	Table(ctx context.Context) ([]Route, error)
	// Ensure has packets for one address leave the way that the default route takes, unless they do
	// already. Such a route does not outlive a reboot, and network changes may take it away. added
	// says whether it was missing. ErrNotFound means that there is no default route.
	Ensure(ctx context.Context, to netip.Addr) (added bool, err error)
	// Remove takes the routes to exactly one address away. Removing what does not exist is fine.
	Remove(ctx context.Context, to netip.Addr) error
}

// Logs are files that other programs hold open.
type Logs interface {
	// Empty cuts a file to nothing in place, also while a program has it open to write; one that
	// appends goes on at the new end. ErrInUse when that program lets nobody else write,
	// fs.ErrNotExist when there is no such file.
	Empty(path string) error
}

// Programs are exes on the machine, and their processes.
type Programs interface {
	// Run starts an exe with arguments that need no quotes, without a window or standard streams,
	// and gives its exit code when it has ended. When ctx ends first, the process is killed.
	// ErrStartFailed says that Windows does not start it.
	Run(ctx context.Context, exe string, args ...string) (exitCode int, err error)
	// Kill ends a process without asking it, and returns when it has ended. runs is told its exe; a
	// process that is gone, or runs another by now, is fine and left alone; so is the caller itself.
	Kill(ctx context.Context, pid uint32, runs func(exe string) bool) error
	// Processes lists the processes whose exe is path or lies below it, except the caller itself.
	Processes(ctx context.Context, path string) ([]Process, error)
	// Lock takes a lock that ends with the calling process, however that ends, and leaves nothing
	// behind. While another process holds it, it answers ErrInUse and that process.
	Lock(ctx context.Context, path string) (unlock func() error, holder uint32, err error)
	// RemoveAtBoot has the next boot delete a program's file that is in use now. Whatever is called
	// so then is deleted, so it is for names that nobody uses again.
	RemoveAtBoot(path string) error
	// RemoveLayer removes the directory of an image's or a container's file system, with everything in
	// it. Its files keep the rights that they have in the image, so nobody can delete them one by one.
	// One that is gone is fine.
	RemoveLayer(ctx context.Context, path string) error
}

// Process is a running process.
type Process struct {
	PID uint32
	// Parent started it. It may have ended, and another process may have its number by now.
	Parent uint32
	// Exe is the absolute path from which its program was started, also when that has been moved aside
	// since: see AsidePath.
	Exe string
}

// MakesNew says whether Create makes a file new, in place of one of the same name: one for
// Administrators, and a temporary one. Truncating what exists would keep that one's owner and
// rights, the handles that others may have on it, and what else a hard link leads to.
func MakesNew(path string, access Access) bool {
	return access == AccessAdministrators || strings.HasSuffix(path, ".tmp")
}

// WriteFile makes path hold content: written to a temporary name beside it, flushed, and renamed with Replace.
func WriteFile(files Files, path string, content io.Reader, access Access) error {
	temporary := path + ".tmp"
	w, err := files.Create(temporary, access)
	if err != nil {
		return err
	}
	if _, err = io.Copy(w, content); err != nil {
		return errors.Join(err, w.Close(), files.Remove(temporary))
	}
	if err = w.Close(); err == nil {
		err = Replace(files, temporary, path)
	}
	if err != nil {
		return errors.Join(err, files.Remove(temporary))
	}
	return nil
}

// Replace renames a file to path, which it replaces, as soon as nobody has either of them open: see UntilClosed.
func Replace(files Files, from, path string) error {
	return UntilClosed(nil, func() error { return files.Rename(from, path) })
}

// OpenClosed opens a file as soon as nobody keeps others from it: see UntilClosed.
func OpenClosed(files Files, path string) (r io.ReadCloser, err error) {
	err = UntilClosed(nil, func() error { r, err = files.Open(path); return err })
	return r, err
}

// RemoveClosed removes a file as soon as nobody has it open: see UntilClosed.
func RemoveClosed(files Files, path string) error {
	return UntilClosed(nil, func() error { return files.Remove(path) })
}

// UntilClosed makes an attempt to open, start, move or remove files, and makes it again while somebody else has one of
// them open. For such a file Windows answers a sharing violation or that access is denied, and scanners open any file
// for a moment: it is tried for up to a second, or until stop is closed, and then answers ErrInUse or ErrDenied.
func UntilClosed(stop <-chan struct{}, attempt func() error) error {
	err := attempt()
	isOpen := func() bool { return errors.Is(err, ErrInUse) || errors.Is(err, ErrDenied) }
	for pause := firstPause; isOpen() && pause <= lastPause; pause *= 2 {
		select {
		case <-stop:
			return err
		case <-time.After(pause):
		}
		err = attempt()
	}
	return err
}

// Between attempts to move files that are open: together about a second.
const (
	firstPause = 8 * time.Millisecond
	lastPause  = 512 * time.Millisecond
)

// Until reads from r as long as ctx lasts.
func Until(ctx context.Context, r io.Reader) io.Reader { return until{ctx, r} }

type until struct {
	ctx    context.Context //nolint:containedctx // a reader's calls take none
	reader io.Reader
}

// Read is io.Reader.
func (u until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.reader.Read(p)
}

// ReadFile reads a whole file.
func ReadFile(files Files, path string) (content []byte, err error) {
	r, err := files.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return io.ReadAll(r)
}

// Exists says whether a path exists.
func Exists(files Files, path string) (bool, error) {
	_, err := files.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
