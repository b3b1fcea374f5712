// Package port reserves TCP ports of the loopback address for programs of the lab, so that no other program gets
// them. The control plane and scenes use it, and tests that need an address without a listener. It never listens
// itself.
package port

import (
	"context"
	"net"
	"strconv"
)

// Loopback is where every server of the lab listens.
const Loopback = "127.0.0.1"

// Port is a free TCP port on the loopback address, kept until it is released.
type Port struct {
	Number int
	// Kept says that the port stays reserved while its program listens on it, and over its
	// restarts. Elsewhere than on Linux it was only free a moment ago.
	Kept    bool
	release func()
}

// Address is where a program listens.
func (p Port) Address() string { return net.JoinHostPort(Loopback, strconv.Itoa(p.Number)) }

// Release gives the port back. The zero Port has nothing to give.
func (p Port) Release() {
	if p.release != nil {
		p.release()
	}
}

// Reserve keeps a port for a program that binds with SO_REUSEPORT, as Kubernetes' components do
// with --permit-port-sharing. Others can't take it, not even by its number.
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
