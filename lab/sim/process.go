package sim

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Program implements an exe. It runs until it returns or ctx is cancelled (a stop request, a kill, a reboot). Its
// result is the exit code. If a service returns a nonzero code without a stop request, it has crashed. ctx carries the
// logger of the machine.
type Program func(ctx context.Context, p *Process) (exitCode int)

// Process is the view that a running program has of its process and machine.
type Process struct {
	// PID is the process ID.
	PID uint32
	// Args is the command line, split like Windows programs split it. Args[0] is the absolute path of the exe.
	Args []string
	// Env is the system environment, overridden by the environment of the service.
	Env map[string]string
	// Dir is the working directory: the user's home for a remote command, C:\Windows\System32 for a
	// service.
	Dir string
	// Host is the OS interface for this process: its open files are closed when it ends, and every call fails after it
	// was killed.
	Host winos.Host
	// Machine is the machine itself: address, knobs, HNS networks.
	Machine *Machine

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Running reports that a service is up (SERVICE_RUNNING). It is idempotent. Programs that aren't services ignore
	// it.
	Running func()
	// Listen adds a TCP port to the machine's table of listeners until release is called or the process ends. It opens
	// no socket. It returns an error if another program listens on the port.
	Listen func(port int) (release func(), err error)
	// ListenTCP opens a socket on the address of the machine, where other machines reach it, until it is closed or the
	// process ends. Dial on the same machine finds it at 127.0.0.1.
	ListenTCP func(ctx context.Context, port int) (net.Listener, error)
	// AppendTo opens a file for appending and creates it if necessary. Its directory must exist.
	AppendTo func(path string) (io.WriteCloser, error)
	// MakeNetwork creates an HNS network, or replaces the network with that name. See Machine.CreateHNSNetwork.
	MakeNetwork func(network winos.HNSNetwork) (winos.HNSNetwork, error)

	process *process
	launch  launch
}

// Linger keeps the process alive for d after its program has returned. The service is stopped then, but the process
// still runs and its exe is in use.
func (p *Process) Linger(d time.Duration) { p.process.linger.Store(int64(d)) }
