// Package winos defines what the daemon can do on its Windows machine. It consists of small interfaces, and implements
// them with the Windows API.
//
// The operator's calls and the daemon's reconcile loop use these interfaces. The simulated machine implements them as
// well, and passes the same test suite (winostest). The package makes no decisions. Apart from services, only the
// interface Programs starts processes: the daemon uses it to try out its successor.
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

// All implementations wrap these errors, and callers test for them with errors.Is.
var (
	ErrNotFound = errors.New("not found")
	// ErrInUse means that a file is open without sharing (like a running exe), or that a service is still stopping.
	ErrInUse       = errors.New("in use")
	ErrInvalidName = errors.New("invalid name")
	ErrNoSpace     = errors.New("no space left on the disk")
	// ErrStartFailed means that the process of a service ended or reported an error while the service started.
	ErrStartFailed = errors.New("service did not start")
	ErrDenied      = errors.New("access denied")
	// ErrUnsupported means that this system lacks a facility, for example HNS.
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
	Name         string
	Description  string
	Command      string
	Dependencies []string
	// Environment is added to the system's variables.
	Environment map[string]string
	// Recovery lists the delays before the service is restarted after its first, second, … unexpected end. If the
	// service runs for the time RecoveryReset without such an end, Windows starts counting from the first delay again.
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
	// PID is the ID of the service's process, or 0. For a moment, a stopped service may still have a process.
	PID uint32
	// NoAutoStart reports that the start type isn't Automatic. A disabled service can't be started at all.
	NoAutoStart bool
}

// Services is the service manager. All our services start automatically at boot. The errors of Start and Stop contain
// the operation and the service's name.
type Services interface {
	List(ctx context.Context) ([]string, error)
	// Get returns ErrNotFound if the service doesn't exist.
	Get(ctx context.Context, name string) (Service, error)
	// Apply creates a service or changes its configuration, including the start type. It never starts or
	// stops the service. A repeated call changes nothing.
	Apply(ctx context.Context, config ServiceConfig) error
	// Start starts a service and returns when the service is running. If it is already running, Start does nothing. The
	// service manager also starts the services that this service depends on.
	Start(ctx context.Context, name string) error
	// Stop stops the service's dependants (the services that need it), and then the service. It returns when their
	// processes have ended. If the service is already stopped, Stop does nothing.
	Stop(ctx context.Context, name string) error
	// Dependants lists the services that Stop also stops. Each service comes before the services that it needs.
	Dependants(ctx context.Context, name string) ([]string, error)
	// Delete deletes a stopped service. If the service is missing, it returns no error.
	Delete(ctx context.Context, name string) error
	// DeleteAtStop marks a service for deletion and returns at once. Windows deletes the service when it has stopped
	// and all its handles are closed. Until then, the service can neither be started nor created again. A repeated call
	// changes nothing.
	DeleteAtStop(ctx context.Context, name string) error
}

// Access determines which users can open a file or directory.
type Access int

// Kinds of access.
const (
	// AccessInherit means that the file inherits the rights of its parent directory.
	AccessInherit Access = iota
	// AccessAdministrators means that only Administrators and SYSTEM have access. The file inherits no rights.
	AccessAdministrators
	// AccessUsers is for directories, which then inherit no rights. Users have the same rights as in C:\ on a server:
	// they can read, create files, and change their own files. FileInfo.Access of such a directory is AccessInherit.
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
	// delete the file or its content. Only Stat sets Foreign.
	Foreign bool
}

// Files is the file system. Paths are absolute, with a drive letter and backslashes. Errors wrap
// fs.ErrNotExist, ErrInUse, ErrInvalidName, ErrNoSpace or ErrDenied.
type Files interface {
	Open(path string) (io.ReadCloser, error)
	// Create creates, truncates or replaces a file: see MakesNew. Close flushes the file to disk, and returns errors of
	// earlier writes.
	Create(path string, access Access) (io.WriteCloser, error)
	// Rename renames a file, and replaces an existing file at the new path. If the existing file is the exe of a
	// running process, Rename returns ErrInUse. The renamed file itself may be a running exe.
	Rename(from, to string) error
	// Remove deletes a file or an empty directory. If the file is missing, it returns no error.
	Remove(path string) error
	// RemoveAll deletes a file, or a directory with its content, and continues after an error. It deletes links and
	// junctions, but never their targets, even if someone replaces a directory with a link during the call. The caller
	// must ensure that only administrators can replace the directories above path. A missing file is no error.
	RemoveAll(path string) error
	// Stat returns fs.ErrNotExist if the file is missing.
	Stat(path string) (FileInfo, error)
	List(dir string) ([]FileInfo, error)
	// MkdirAll creates a directory and its missing parents. `access` applies only to new directories.
	MkdirAll(path string, access Access) error
	// Restrict sets the rights of an existing file or directory to AccessAdministrators. Files that inherit rights from
	// the directory get the new rights as well. A repeated call changes nothing.
	Restrict(path string) error
}

// Environment accesses the system's environment variables in the registry. The service manager reads them at boot.
type Environment interface {
	All(ctx context.Context) (map[string]string, error)
	// Set sets a variable. Names are case-insensitive. Programs that already run keep the old value: Windows announces
	// a change with a window message, but a service can't send a message to other sessions.
	Set(ctx context.Context, name, value string) error
	Unset(ctx context.Context, name string) error
}

// Trust is the root certificate store of the local machine.
type Trust interface {
	// List returns the DER of each certificate, including those that can't be parsed.
	List(ctx context.Context) ([][]byte, error)
	// Add and Remove change exactly the certificate with the content `der`. A repeated call changes nothing.
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
	// Hostname is the computer's DNS host name, with upper and lower case as in Windows.
	Hostname string
	// FullName is the host name, with the primary DNS suffix if the computer has one, for example in a domain.
	FullName string
	// MachineID is the registry's MachineGuid.
	MachineID string
	// BootID differs after every boot. It is empty until an administrator's program has called Facts in this boot.
	BootID      string
	ProductName string
	Server      bool
	Build       int
	UBR         int
	// Admin reports whether the process has administrator rights.
	Admin  bool
	Memory int64 // in bytes
	// DiskFree and DiskTotal are the free space and the size of the system drive, in bytes.
	DiskFree, DiskTotal int64
	// StaticAddress reports that the address of the interface with the default route doesn't come from DHCP.
	// DeviceLessNICDisabled reports that HNS is configured to keep such an address. Source: the prerequisites of
	// bring-your-own hosts in OpenShift's Windows documentation.
	StaticAddress, DeviceLessNICDisabled bool
	// Gateways are the names of the connected interfaces that have an IPv4 default route.
	Gateways []string
	// RebootSigns tell why Windows itself needs a reboot. They are sorted. A changed host name is not included.
	RebootSigns []string
	// ReplacedAtBoot are files in use that the next boot replaces. Files that the next boot only deletes are omitted:
	// nothing depends on their deletion, and installers often leave such files.
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
	// The result of Now has no monotonic reading, because the monotonic clock stops while a virtual machine is paused.
	Now() time.Time
	// SetHostname takes effect at the next boot.
	SetHostname(ctx context.Context, name string) error
	Feature(ctx context.Context, name string) (FeatureState, error)
	// EnableFeature may take minutes. If the method Feature then returns FeaturePending, a reboot is needed.
	EnableFeature(ctx context.Context, name string) error
	// Reboot requests a reboot and returns before the reboot begins. Windows shows and logs `why`.
	Reboot(ctx context.Context, why string) error
	// ExcludeFromDefender excludes the process of an exe from the scans of Windows Defender. If Defender doesn't exist,
	// it does nothing. A repeated call changes nothing.
	ExcludeFromDefender(ctx context.Context, exe string) error
}

// HNSNetwork is a network of the host network service (HNS).
type HNSNetwork struct {
	ID, Name     string
	Subnet       netip.Prefix
	ManagementIP netip.Addr
	// VNI is the VXLAN identifier of an overlay network, or 0 if HNS doesn't report one.
	VNI uint32
}

// Network is the machine's network. If HNS is missing, the methods for HNS return ErrUnsupported. Calls of HNS
// may run longer than their context: see WithTimeouts.
type Network interface {
	// NodeIP returns the IPv4 address of the interface with the default route.
	NodeIP(ctx context.Context) (netip.Addr, error)
	// Listening returns the name of the listening program for each TCP port in use. An unknown name is empty.
	Listening(ctx context.Context) (map[int]string, error)
	// HNSNetwork returns the network with this name, or ErrNotFound if there is none.
	HNSNetwork(ctx context.Context, name string) (HNSNetwork, error)
	// EnsureEndpoint finds the HNS endpoint with this name on a network, or else an unnamed endpoint with the address.
	// If there is neither, it creates an endpoint. The new endpoint gets the address if the address is valid and
	// unused. Then EnsureEndpoint attaches the endpoint to the host and returns the endpoint's IPv4 address.
	EnsureEndpoint(ctx context.Context, network, endpoint string, address netip.Addr) (netip.Addr, error)
	// RemoveHNSNetwork deletes the network with this name and its endpoints. A missing network is no error.
	RemoveHNSNetwork(ctx context.Context, name string) error
	// Listen listens on a TCP port of the loopback address. If the port is in use, it returns ErrInUse.
	Listen(ctx context.Context, port int) (net.Listener, error)
	// Dial connects to a TCP port from this machine, without a proxy.
	Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error)
}

// Route is one row of the routing table.
type Route struct {
	Destination netip.Prefix
	// NextHop is 0.0.0.0 if the destination is on the interface's own network.
	NextHop   netip.Addr
	Interface string
	// Metric is the sum of the metrics of the route and of its interface. Windows compares these sums.
	Metric uint32
}

// Routes is the IPv4 routing table. Its methods change only routes to single addresses.
type Routes interface {
	// Addresses lists the IPv4 addresses of all connected interfaces. It omits addresses that Windows doesn't use yet.
	Addresses(ctx context.Context) ([]netip.Addr, error)
	// Table lists the routes of all existing interfaces, with the widest destination first.
	Table(ctx context.Context) ([]Route, error)
	// Ensure adds a route to a single address, through the interface and next hop of the default route. If this
	// interface already has a route to the address, Ensure does nothing and `added` is false. A reboot deletes the
	// route, and network changes may delete it. If there is no default route, Ensure returns ErrNotFound.
	Ensure(ctx context.Context, to netip.Addr) (added bool, err error)
	// Remove deletes the routes to a single address. If there is no such route, it returns no error.
	Remove(ctx context.Context, to netip.Addr) error
}

// Logs changes log files that other programs have open.
type Logs interface {
	// Empty truncates a file in place, even while a program has the file open for writing. A program that appends to
	// the file continues at the new end. If the program doesn't let others write to the file, Empty returns ErrInUse.
	// If the file is missing, it returns fs.ErrNotExist.
	Empty(path string) error
}

// Programs starts and ends programs on the machine, and deletes files in use.
type Programs interface {
	// Run starts an exe without a window or standard streams, and returns its exit code when the process has ended. The
	// args must not need quotes. If ctx ends first, Run kills the process. If Windows can't start the exe, Run returns
	// ErrStartFailed.
	Run(ctx context.Context, exe string, args ...string) (exitCode int, err error)
	// Kill kills a process and returns when the process has ended. Exception: Kill does nothing and returns nil if the
	// process doesn't exist, if it is the caller itself, or if `runs` returns false for the path of its exe.
	Kill(ctx context.Context, pid uint32, runs func(exe string) bool) error
	// Processes lists the processes whose exe is path or is below path, except the calling process.
	Processes(ctx context.Context, path string) ([]Process, error)
	// Lock takes a lock, which lasts until unlock is called or the calling process ends. The lock leaves no file
	// behind. If another process has the lock, Lock returns ErrInUse, and the ID of that process as holder.
	Lock(ctx context.Context, path string) (unlock func() error, holder uint32, err error)
	// RemoveAtBoot makes the next boot delete a file that is in use. If there is a new file with this name by then, the
	// boot deletes the new file. So call RemoveAtBoot only for names that aren't used again.
	RemoveAtBoot(path string) error
	// RemoveLayer deletes the directory with the file system of an image or a container. The files in it can't be
	// deleted one by one, because they have the access rights from the image. A missing directory is no error.
	RemoveLayer(ctx context.Context, path string) error
}

// Process is a running process.
type Process struct {
	PID uint32
	// Exe is the path of the exe at the process's start, even if the exe was moved aside since then: see AsidePath.
	Exe string
}

// MakesNew reports whether Create replaces an existing file with a new file instead of truncating it. Create does so
// for a file with AccessAdministrators and for a temporary file. A truncated file would keep its owner, its rights, its
// hard links, and the handles of other programs.
func MakesNew(path string, access Access) bool {
	return access == AccessAdministrators || strings.HasSuffix(path, ".tmp")
}

// WriteFile writes content to a temporary file next to path, flushes it, and renames it to path with Replace.
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

// Replace renames a file to path, and replaces an existing file there. For files in use, see UntilClosed.
func Replace(files Files, from, path string) error {
	return UntilClosed(nil, func() error { return files.Rename(from, path) })
}

// OpenClosed opens a file. It waits until no other program denies access to the file, see UntilClosed.
func OpenClosed(files Files, path string) (r io.ReadCloser, err error) {
	err = UntilClosed(nil, func() error { r, err = files.Open(path); return err })
	return r, err
}

// RemoveClosed deletes a file. It waits until no program has the file open, see UntilClosed.
func RemoveClosed(files Files, path string) error {
	return UntilClosed(nil, func() error { return files.Remove(path) })
}

// UntilClosed calls `attempt`, which opens, starts, renames or deletes files. While another program has a file open,
// UntilClosed calls `attempt` again. Virus scanners open any file for a moment, and Windows then returns a sharing
// violation or "access denied". After about a second, or when stop is closed, UntilClosed returns the last error, such
// as ErrInUse or ErrDenied.
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

// Shortest and longest pause between attempts. All pauses together take about a second.
const (
	firstPause = 8 * time.Millisecond
	lastPause  = 512 * time.Millisecond
)

// Until returns a reader that reads from r. After ctx has ended, each read returns the error context.Cause(ctx).
func Until(ctx context.Context, r io.Reader) io.Reader { return until{ctx, r} }

type until struct {
	ctx    context.Context //nolint:containedctx // an io.Reader's method has no parameter for a context
	reader io.Reader
}

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
