// Package winos defines what the daemon may do on its Windows machine: small interfaces, implemented with the Windows
// API on Windows.
//
// The daemon's verbs and reconcile loop use it. The simulated machine implements the same interfaces and passes the
// same test suite (winostest). The package makes no decisions. Only Programs starts processes, to try out the daemon's
// successor.
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

// Errors that implementations map to. Callers test them with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	// ErrInUse: a file is open without sharing, such as the exe of a running process, or a service is still
	// stopping.
	ErrInUse = errors.New("in use")
	// ErrInvalidName: Windows doesn't allow a path or name.
	ErrInvalidName = errors.New("invalid name")
	ErrNoSpace     = errors.New("no space left on the disk")
	// ErrStartFailed: a service's process ended or reported an error while it started.
	ErrStartFailed = errors.New("service did not start")
	ErrDenied      = errors.New("access denied")
	// ErrUnsupported: this system lacks the facility (no HNS, for example).
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

// ServiceConfig is a service's configuration in the service manager.
type ServiceConfig struct {
	Name        string
	Description string
	// Command is the full command line of the service's process.
	Command      string
	Dependencies []string
	// Environment holds the variables of the service's process, in addition to the system's variables.
	Environment map[string]string
	// Recovery lists the delays before restarts after the first, second, … unexpected end. After the time
	// RecoveryReset, Windows counts from the first end again.
	Recovery      []time.Duration
	RecoveryReset time.Duration
}

// ServiceState is the state of a service.
type ServiceState string

// States, as in SERVICE_STATUS_PROCESS.
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
	// PID of the process, or 0. A stopped service may still have a process for a moment.
	PID uint32
	// NoAutoStart reports that the start type isn't Automatic, so the service doesn't start at boot. A
	// disabled service doesn't start at all.
	NoAutoStart bool
}

// Services is the service manager. All our services start automatically at boot. Errors of Start and Stop
// name the operation and the service.
type Services interface {
	// List names all services of the machine.
	List(ctx context.Context) ([]string, error)
	// Get returns ErrNotFound for a service that doesn't exist.
	Get(ctx context.Context, name string) (Service, error)
	// Apply creates a service or changes its configuration, including the start type. It never starts or
	// stops the service. A repeated call changes nothing.
	Apply(ctx context.Context, config ServiceConfig) error
	// Start returns when the service runs, and does nothing if it runs already. The service manager starts
	// its dependencies.
	Start(ctx context.Context, name string) error
	// Stop stops the running dependants, then the service, and returns when their processes have ended. It
	// does nothing if the service is stopped.
	Stop(ctx context.Context, name string) error
	// Dependants lists the services that Stop would stop together with this service. Each service comes before the
	// services that it needs.
	Dependants(ctx context.Context, name string) ([]string, error)
	// Delete deletes a stopped service. A missing service is not an error.
	Delete(ctx context.Context, name string) error
	// DeleteAtStop marks a service for deletion. It returns at once. Windows deletes the service when it has
	// stopped and all its handles are closed. Until then, the service can't be started or installed. A repeated
	// call changes nothing.
	DeleteAtStop(ctx context.Context, name string) error
}

// Access is the set of users that can open a file or directory.
type Access int

// Kinds of access.
const (
	// AccessInherit inherits the rights of the parent directory.
	AccessInherit Access = iota
	// AccessAdministrators permits access by Administrators and SYSTEM only. Inheritance is off.
	AccessAdministrators
	// AccessUsers is for directories. Inheritance is off. Users have the same rights as in C:\ of a server: they
	// can read, and they can create and keep their own files. A FileInfo shows such a directory as AccessInherit.
	AccessUsers
)

// FileInfo describes a file.
type FileInfo struct {
	Name    string
	Size    int64
	Dir     bool
	ModTime time.Time
	Access  Access
	// Foreign reports that an account without administrator rights owns the file, or may change its rights, or may
	// delete it or its content. Only Stat sets it.
	Foreign bool
}

// Files is the file system. Paths are absolute, with a drive letter and backslashes. Errors wrap
// fs.ErrNotExist, ErrInUse, ErrInvalidName, ErrNoSpace or ErrDenied.
type Files interface {
	Open(path string) (io.ReadCloser, error)
	// Create creates or truncates a file. Close flushes to disk and returns delayed write errors.
	Create(path string, access Access) (io.WriteCloser, error)
	// Rename replaces an existing file at to. It returns ErrInUse if that file is the exe of a running
	// process. A running exe itself may be renamed.
	Rename(from, to string) error
	// Remove deletes a file or an empty directory. A missing file is not an error.
	Remove(path string) error
	// RemoveAll deletes a file, or a directory with its content, and continues after an error. It deletes links and
	// junctions, but never their targets, even if someone replaces a directory with a link during the call. Only
	// administrators may be able to replace the directories above path. A missing file is not an error.
	RemoveAll(path string) error
	// Stat returns fs.ErrNotExist for a missing file.
	Stat(path string) (FileInfo, error)
	List(dir string) ([]FileInfo, error)
	// MkdirAll creates a directory and its parents. access applies to the directories that it creates.
	MkdirAll(path string, access Access) error
	// Restrict sets the rights of an existing file or directory to AccessAdministrators. The content of a
	// directory keeps its own rights, except inherited ones. A repeated call changes nothing.
	Restrict(path string) error
}

// Environment is the system's environment in the registry. Services get it when they start.
type Environment interface {
	All(ctx context.Context) (map[string]string, error)
	// Names are case-insensitive. Running programs keep their environment. Windows announces a change
	// with a window message, but a service can't send one to other sessions.
	Set(ctx context.Context, name, value string) error
	Unset(ctx context.Context, name string) error
}

// Trust is the root certificate store of the local machine.
type Trust interface {
	// List returns the DER of each certificate, including those that can't be parsed.
	List(ctx context.Context) ([][]byte, error)
	// Add and Remove affect exactly one certificate, by its content. A repeated call changes nothing.
	Add(ctx context.Context, der []byte) error
	Remove(ctx context.Context, der []byte) error
}

// FeatureState is the state of a Windows feature.
type FeatureState string

// Feature states, as in DismPackageFeatureState.
const (
	FeatureAbsent  FeatureState = "Absent"
	FeaturePending FeatureState = "Pending" // the next boot completes the installation
	FeatureEnabled FeatureState = "Enabled"
)

// Facts describe the machine.
type Facts struct {
	// Hostname is the computer's DNS host name, in Windows' spelling.
	Hostname string
	// FullName is the host name with the computer's primary DNS suffix, if it has one, such as in a domain.
	FullName string
	// MachineID is the registry's MachineGuid.
	MachineID string
	// BootID changes with every boot. It is empty until a program with administrator rights has read it in
	// this boot.
	BootID      string
	ProductName string
	// Server is false for client editions of Windows.
	Server bool
	Build  int
	UBR    int
	// Admin reports whether the process has administrator rights.
	Admin  bool
	Memory int64 // bytes
	// DiskFree and DiskTotal are the free space and the size of the system drive, in bytes.
	DiskFree, DiskTotal int64
	// StaticAddress reports that the interface with the default route doesn't have its address from DHCP.
	// DeviceLessNICDisabled reports that HNS is configured to keep such an address. Source: the prerequisites
	// of bring-your-own hosts in OpenShift's Windows documentation.
	StaticAddress, DeviceLessNICDisabled bool
	// Gateways are the connected interfaces with an IPv4 default route.
	Gateways []string
	// RebootSigns are Windows' own reasons for a pending reboot, sorted. A new host name is not included.
	RebootSigns []string
	// ReplacedAtBoot are files in use that the next boot replaces. Files that the next boot only deletes are
	// omitted: installers and updates leave them all the time, on some machines at every boot, and nothing
	// depends on their deletion.
	ReplacedAtBoot []string
}

// Reasons for a pending reboot, as in Facts.RebootSigns.
const (
	SignServicing = "ComponentBasedServicing"
	SignUpdate    = "WindowsUpdate"
)

// System is the machine as a whole.
type System interface {
	Facts(ctx context.Context) (Facts, error)
	// Now returns the time of the wall clock. It has no monotonic reading, because the monotonic clock stops while a
	// virtual machine is paused.
	Now() time.Time
	// SetHostname takes effect with the next boot.
	SetHostname(ctx context.Context, name string) error
	Feature(ctx context.Context, name string) (FeatureState, error)
	// EnableFeature may take minutes and may need a reboot: see Feature.
	EnableFeature(ctx context.Context, name string) error
	// Reboot requests a restart and returns before it happens.
	Reboot(ctx context.Context, why string) error
	// ExcludeFromDefender excludes the process of an exe from Windows Defender, if Defender exists. A
	// repeated call changes nothing.
	ExcludeFromDefender(ctx context.Context, exe string) error
}

// HNSNetwork is a network of the host network service (HNS).
type HNSNetwork struct {
	ID, Name     string
	Subnet       netip.Prefix
	ManagementIP netip.Addr
	// VNI is an overlay network's VXLAN identifier, or 0 if HNS doesn't report it.
	VNI uint32
}

// Network is the machine's network. If HNS is missing, the methods for HNS return ErrUnsupported. Calls of HNS
// may run longer than their context: see WithTimeouts.
type Network interface {
	// NodeIP returns the IPv4 address of the interface with the default route.
	NodeIP(ctx context.Context) (netip.Addr, error)
	// Listening returns the listening TCP ports with the name of the program, which is empty if it is
	// unknown.
	Listening(ctx context.Context) (map[int]string, error)
	// HNSNetwork returns ErrNotFound if there is no network of that name.
	HNSNetwork(ctx context.Context, name string) (HNSNetwork, error)
	// EnsureEndpoint finds the HNS endpoint of that name on a network, or else an endpoint without a name that has the
	// address. If there is neither, it creates an endpoint. If the address is valid and unused, the new endpoint gets
	// it. It attaches the endpoint to the host's compartment and returns its IPv4 address.
	EnsureEndpoint(ctx context.Context, network, endpoint string, address netip.Addr) (netip.Addr, error)
	// RemoveHNSNetwork deletes the network of that name and its endpoints. A missing network is not an error.
	RemoveHNSNetwork(ctx context.Context, name string) error
	// Listen listens on a TCP port of the loopback address. If the port is in use, it returns ErrInUse.
	Listen(ctx context.Context, port int) (net.Listener, error)
	// Dial connects to a TCP port from this machine, without a proxy.
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Route is one row of the routing table.
type Route struct {
	Destination netip.Prefix
	// NextHop is unspecified if the destination is on the link.
	NextHop netip.Addr
	// Interface is the interface's name in Windows.
	Interface string
	// Metric is the sum of the route's and the interface's metric, which Windows compares.
	Metric uint32
}

// Routes is the IPv4 routing table. It changes only routes to single addresses.
type Routes interface {
	// Addresses lists the IPv4 addresses of the interfaces with a link, without addresses that Windows
	// doesn't use yet.
	Addresses(ctx context.Context) ([]netip.Addr, error)
	// Table lists the routes of existing interfaces, with the widest destination first.
	Table(ctx context.Context) ([]Route, error)
	// Ensure adds a route to one address through the interface and next hop of the default route, unless this
	// interface already has a route to the address. A reboot deletes the route, and network changes may delete it.
	// added reports whether the route was missing. ErrNotFound means that there is no default route.
	Ensure(ctx context.Context, to netip.Addr) (added bool, err error)
	// Remove deletes the routes to exactly one address. A missing route is not an error.
	Remove(ctx context.Context, to netip.Addr) error
}

// Logs are files that other programs hold open.
type Logs interface {
	// Empty truncates a file in place, even while a program has it open for writing. A program that appends
	// continues at the new end. If that program denies shared writes, Empty returns ErrInUse. If the file is
	// missing, it returns fs.ErrNotExist.
	Empty(path string) error
}

// Programs are exes on the machine and their processes.
type Programs interface {
	// Run starts an exe with arguments that need no quotes, without a window or standard streams. It returns
	// the exit code when the process has ended. If ctx ends first, it kills the process. ErrStartFailed means
	// that Windows can't start the exe.
	Run(ctx context.Context, exe string, args ...string) (exitCode int, err error)
	// Kill kills a process and returns when it has ended. It calls runs with the process's exe. It returns
	// nil without a kill if the process is gone, if runs returns false, or if the process is the caller
	// itself.
	Kill(ctx context.Context, pid uint32, runs func(exe string) bool) error
	// Processes lists the processes whose exe is path or is below it, except the caller itself.
	Processes(ctx context.Context, path string) ([]Process, error)
	// Lock takes a lock that ends with the calling process, however the process ends, and leaves no file behind. If
	// another process holds the lock, Lock returns ErrInUse and that process's id.
	Lock(ctx context.Context, path string) (unlock func() error, holder uint32, err error)
	// RemoveAtBoot registers a file in use for deletion at the next boot. The boot deletes any file of that
	// name, so use it only for names that aren't used again.
	RemoveAtBoot(path string) error
	// RemoveLayer deletes the directory of an image's or a container's file system. Its files keep their
	// rights from the image, so they can't be deleted one by one. A missing directory is not an error.
	RemoveLayer(ctx context.Context, path string) error
}

// Process is a running process.
type Process struct {
	PID uint32
	// Exe is the absolute path that the program had when it started, even if the file has been moved aside since:
	// see AsidePath.
	Exe string
}

// MakesNew reports whether Create replaces an existing file with a new one: a file for Administrators, or a
// temporary file. A truncated file would keep its owner, its rights, other programs' handles and its hard
// links.
func MakesNew(path string, access Access) bool {
	return access == AccessAdministrators || strings.HasSuffix(path, ".tmp")
}

// WriteFile writes content to a temporary file in the same directory, flushes it, and renames it to path with
// Replace.
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

// Replace renames a file to path and replaces an existing file. It waits until neither of them is open: see
// UntilClosed.
func Replace(files Files, from, path string) error {
	return UntilClosed(nil, func() error { return files.Rename(from, path) })
}

// OpenClosed opens a file. It waits until no other program denies access to it: see UntilClosed.
func OpenClosed(files Files, path string) (r io.ReadCloser, err error) {
	err = UntilClosed(nil, func() error { r, err = files.Open(path); return err })
	return r, err
}

// RemoveClosed deletes a file. It waits until no program has it open: see UntilClosed.
func RemoveClosed(files Files, path string) error {
	return UntilClosed(nil, func() error { return files.Remove(path) })
}

// UntilClosed calls attempt, which opens, starts, renames or deletes files. While another program has a file open,
// Windows returns a sharing violation or "access denied". Scanners open any file for a moment. So UntilClosed
// retries for up to a second or until stop is closed, and then returns ErrInUse or ErrDenied.
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

// Delays between attempts, about a second in total.
const (
	firstPause = 8 * time.Millisecond
	lastPause  = 512 * time.Millisecond
)

// Until returns a reader that reads from r until ctx ends.
func Until(ctx context.Context, r io.Reader) io.Reader { return until{ctx, r} }

type until struct {
	ctx    context.Context //nolint:containedctx // a reader's methods have no parameter for one
	reader io.Reader
}

// Read implements io.Reader.
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

// Exists reports whether a path exists.
func Exists(files Files, path string) (bool, error) {
	_, err := files.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
