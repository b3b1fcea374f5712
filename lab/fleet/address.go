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

// reservation is the port by which an address is taken: whoever listens there has it, among all
// labs of this computer. It lies above the ports that systems choose themselves.
const reservation = 65001

// Pool is the addresses of 127.<second>.0.0/16, 254 of each /24. Hosts of several labs may run on
// one computer, and each has ports that must be its own, so an address is given to one host at a
// time.
type Pool struct {
	second byte

	mu   sync.Mutex
	next uint16
}

// NewPool begins at 127.<second>.0.1.
func NewPool(second byte) *Pool { return &Pool{second: second} }

// Take gives the next address that nobody has, until Release.
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

// Lease is an address that is taken. It ends with the process at the latest.
type Lease struct {
	Address netip.Addr
	hold    net.Listener
}

// Release lets others have the address.
func (l *Lease) Release() error { return l.hold.Close() }

// TakeOwn gives the address that this computer has in its network, when no other lab has it. The API
// server calls kubelets at no loopback address, and such are in no endpoints.
func TakeOwn(ctx context.Context) (*Lease, error) {
	address, err := own()
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

// own is the first IPv4 address that is neither a loopback nor a link-local one.
func own() (netip.Addr, error) {
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
