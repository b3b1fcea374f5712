// Command standin contains the stand-ins of the programs on a node in one Windows program. The name of its file selects
// the program: kubelet.exe, kube-proxy.exe and so on.
//
// They are the stand-ins of the simulated hosts (lab/sim/program), with real files, a real service manager and real
// sockets. The stand-in of kubelet gets its first certificate, registers its Node and renews its lease. No stand-in
// runs containers. Tests can make stand-ins imitate faults of the real programs: see package fault.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

func main() {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "finding the own program:", err)
		os.Exit(1)
	}
	name := strings.ToLower(filepath.Base(self))
	if name == shim {
		os.Exit(stay(os.Args[1:]))
	}
	run, known := program.Standins(program.Options{})[name]
	if !known {
		fmt.Fprintln(os.Stderr, "no stand-in has the name", name)
		os.Exit(1)
	}
	process := newProcess(append([]string{self}, os.Args[1:]...))
	if isService(name, process.Args) {
		os.Exit(serve(name, process, run))
	}
	os.Exit(run(context.Background(), process))
}

// isService reports whether the service manager started the program. Programs that can also be started manually run as
// services only with the flag windows-service.
func isService(name string, args []string) bool {
	return name == "windows_exporter.exe" || slices.ContainsFunc(args[1:], func(arg string) bool {
		return strings.TrimLeft(arg, "-") == "windows-service"
	})
}

// newProcess returns this process in the form that the stand-ins need. They need no simulated machine.
func newProcess(args []string) *sim.Process {
	return &sim.Process{
		PID: uint32(os.Getpid()), Args: args, Env: environment(), Dir: filepath.Dir(args[0]), Host: winos.New(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Running: func() {},
		Listen: listen,
		ListenTCP: func(ctx context.Context, port int) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
		},
		MakeNetwork: makeNetwork,
		AppendTo: func(path string) (io.WriteCloser, error) {
			return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		},
	}
}

func environment() map[string]string {
	all := map[string]string{}
	for _, line := range os.Environ() {
		name, value, _ := strings.Cut(line, "=")
		all[name] = value
	}
	return all
}

// listen listens on a port and closes every connection.
func listen(port int) (release func(), err error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	return func() { _ = listener.Close() }, nil
}
