// Package port reserves TCP ports of the loopback address for programs of the lab, so that no other program gets them.
// The control plane, scenes, and tests that need an address without a listener use it. It never listens itself.
package port

import (
	"context"
	"net"
	"strconv"
)

// Loopback is the address of every server in the lab.
const Loopback = "127.0.0.1"

// Port is a free TCP port on the loopback address, reserved until it is released.
type Port struct {
	Number int
	// Kept means that the port stays reserved while its program listens on it, and over the program's restarts. On
	// systems other than Linux, Kept is false: the port was free, but another program may take it.
	Kept    bool
	release func()
}

// Address returns the address that a program listens on.
func (p Port) Address() string { return net.JoinHostPort(Loopback, strconv.Itoa(p.Number)) }

// Release frees the port. It does nothing for the zero Port.
func (p Port) Release() {
	if p.release != nil {
		p.release()
	}
}

// Reserve reserves a port for a program that binds with SO_REUSEPORT, like Kubernetes' components with
// --permit-port-sharing. Other programs can't bind to it, even by its number.
func Reserve(ctx context.Context) (Port, error) { return reserve(ctx, byReusePort) }

// Hold reserves a port for a program that binds with SO_REUSEADDR only, like every Go listener. The system doesn't
// assign this port to listeners that ask for any free port, or to outgoing connections.
func Hold(ctx context.Context) (Port, error) { return reserve(ctx, byReuseAddress) }

// sharing is the option that lets a program bind to a reserved port.
type sharing int

const (
	byReusePort sharing = iota
	byReuseAddress
)
