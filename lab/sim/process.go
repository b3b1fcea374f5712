package sim

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Program implements an exe. The process runs until the function returns its exit code. A stop request, a kill or a
// reboot cancels ctx. The function must return soon after that. If a service returns a code other than 0, even after a
// request to stop, the service has crashed. ctx contains the logger of the machine.
type Program func(ctx context.Context, p *Process) (exitCode int)

// Process is what a running program knows about its process and its machine.
type Process struct {
	// PID is the process ID.
	PID uint32
	// Args are the arguments. The command line is split as Windows programs split it. Args[0] is the absolute path of
	// the exe.
	Args []string
	// Env is the environment: the environment of the system, and the environment of the service, which takes
	// precedence.
	Env map[string]string
	// Dir is the working directory. For a remote command, this is the user's home directory. For a service, it is
	// C:\Windows\System32.
	Dir string
	// Host is the interface to the operating system for this process. When the process ends, its open files are closed.
	// After the process was killed, every call fails.
	Host winos.Host
	// Machine is the process's machine. It has methods for the address, knobs and HNS networks.
	Machine *Machine

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Running reports that the service is running (SERVICE_RUNNING). It may be called more than once. Programs that
	// aren't services needn't call it.
	Running func()
	// Listen adds a TCP port to the machine's table of listeners, but doesn't open a socket. The port is in the table
	// until release is called or the process ends. Listen returns an error if a different program listens on the port.
	Listen func(port int) (release func(), err error)
	// ListenTCP opens a socket at the address of the machine, so that other machines can connect to it. The socket is
	// open until it is closed or the process ends. On the same machine, Dial finds the socket at 127.0.0.1.
	ListenTCP func(ctx context.Context, port int) (net.Listener, error)
	// AppendTo opens a file and appends to it. If the file doesn't exist, AppendTo creates it. The directory of the
	// file must exist.
	AppendTo func(path string) (io.WriteCloser, error)
	// MakeNetwork creates an HNS network, or replaces the HNS network with the same name: see Machine.CreateHNSNetwork.
	MakeNetwork func(network winos.HNSNetwork) (winos.HNSNetwork, error)

	process *process
	launch  launch
}

// RunService calls `run`. It replaces the daemon's code that connects to the service manager of Windows.
func (p *Process) RunService(ctx context.Context, _ string,
	run func(ctx context.Context, running func()) error) error {
	return run(ctx, p.Running)
}

// Linger keeps the process running for the time d after its program has returned. During this time, the service is
// already stopped, but the exe is still in use.
func (p *Process) Linger(d time.Duration) { p.process.linger.Store(int64(d)) }
