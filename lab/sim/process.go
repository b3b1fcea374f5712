package sim

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Program is what an exe does. It runs until it ends by itself or ctx is cancelled (a stop request,
// a kill, a reboot); its result is the exit code. A service that ends with another code than 0
// without being asked to has crashed. ctx carries the machine's logger.
type Program func(ctx context.Context, p *Process) (exitCode int)

// Process is what a running program sees.
type Process struct {
	// PID is the process's own.
	PID uint32
	// Args is the command line, split as Windows programs do; Args[0] is the absolute path of the
	// exe.
	Args []string
	// Env is the system's environment with the service's own on top.
	Env map[string]string
	// Dir is the working directory: the user's home for a remote command, C:\Windows\System32 for a
	// service.
	Dir string
	// Host is the machine's OS interface as this process sees it: its open files close when it
	// ends, and nothing works once it was killed.
	Host winos.Host
	// Machine is the machine itself: address, knobs, HNS networks.
	Machine *Machine

	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Running is called by a service when it is up (SERVICE_RUNNING). Programs that are no service
	// ignore it; repeating it changes nothing.
	Running func()
	// Listen enters a TCP port into the machine's table of listeners until release is called or the
	// process ends. It opens no socket. The error says that something else listens there.
	Listen func(port int) (release func(), err error)
	// ListenTCP opens a socket where other machines reach it, on the machine's address, until it is
	// closed or the process ends. Dial of the same machine finds it at 127.0.0.1.
	ListenTCP func(ctx context.Context, port int) (net.Listener, error)
	// AppendTo opens a file to write at its end, and makes it if there is none. Its directory must
	// exist.
	AppendTo func(path string) (io.WriteCloser, error)
	// MakeNetwork makes an HNS network, or changes the one of that name: see
	// Machine.CreateHNSNetwork.
	MakeNetwork func(network winos.HNSNetwork) (winos.HNSNetwork, error)

	process *process
	launch  launch
}

// Linger keeps the process for d after its program has returned, with its exe in use: a service is
// stopped by then, and its process is not.
func (p *Process) Linger(d time.Duration) { p.process.linger.Store(int64(d)) }
