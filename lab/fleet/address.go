package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// reservation is the port that reserves an address on this computer for a lab. The process that listens on this port
// owns the address. The port is above the ports that operating systems choose for outgoing connections.
const reservation = 65001

// Pool gives out the addresses in 127.<second>.0.0/16, 254 in each /24. No two hosts share an address, because all
// hosts use the same ports. Several labs may run on one computer, so addresses are reserved among all labs.
type Pool struct {
	second byte

	mu   sync.Mutex
	next uint16
}

// NewPool returns a pool whose first address is 127.<second>.0.1.
func NewPool(second byte) *Pool { return &Pool{second: second} }

// Take reserves the next free address until the lease is released.
func (p *Pool) Take(ctx context.Context) (*Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 1 << 16 {
		p.next++
		low := byte(p.next)
		if low == 0 || low == 255 {
			continue
		}
		address := netip.AddrFrom4([4]byte{127, p.second, byte(p.next >> 8), low})
		hold, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(address, reservation).String())
		if err == nil {
			return &Lease{Address: address, hold: hold}, nil
		}
	}
	return nil, fmt.Errorf("every address of 127.%d.0.0/16 is taken", p.second)
}

// Lease is a reserved address. The reservation ends with Release, or when the process ends.
type Lease struct {
	Address netip.Addr
	hold    net.Listener
}

// Release frees the address.
func (l *Lease) Release() error { return l.hold.Close() }

// TakeOwn reserves the address of this computer in its network. It fails if a different lab has reserved this address.
// Some tests need this address: the API server doesn't connect to kubelets at loopback addresses, and Endpoints can't
// contain such addresses.
func TakeOwn(ctx context.Context) (*Lease, error) {
	address, err := OwnAddress()
	if err != nil {
		return nil, err
	}
	for {
		hold, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(address, reservation).String())
		if err == nil {
			return &Lease{Address: address, hold: hold}, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("taking the address of this computer: %w", err)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for another lab to release %s: %w", address, ctx.Err())
		}
	}
}

// OwnAddress returns this computer's first IPv4 address that is neither a loopback nor a link-local address.
func OwnAddress() (netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("listing the addresses of this computer: %w", err)
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() &&
			prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("this computer has no IPv4 address but the loopback")
}
