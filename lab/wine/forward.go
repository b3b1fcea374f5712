//go:build linux

package wine

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
)

// forward lets programs on the host connect to a server of this machine at the same address. The address must be in the
// loopback network.
type forward struct {
	target   netip.AddrPort
	listener net.Listener
	group    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

func (c *cell) forward(target netip.AddrPort) (*forward, error) {
	listener, err := c.listen(target)
	if err != nil {
		return nil, err
	}
	f := &forward{target: target, listener: listener, open: map[net.Conn]struct{}{}}
	f.group.Go(f.run)
	return f, nil
}

func (f *forward) run() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.group.Go(func() { f.carry(conn) })
	}
}

// carry forwards one connection. If the server is gone, the connection of the host ends.
func (f *forward) carry(inner net.Conn) {
	defer f.drop(inner)
	if !f.keep(inner) {
		return
	}
	outer, err := new(net.Dialer).DialContext(context.Background(), "tcp", f.target.String())
	if err != nil {
		return
	}
	defer f.drop(outer)
	if !f.keep(outer) {
		return
	}
	var both sync.WaitGroup
	for _, way := range []struct{ from, to net.Conn }{{inner, outer}, {outer, inner}} {
		both.Go(func() {
			_, err := io.Copy(way.to, way.from)
			half, ok := way.to.(*net.TCPConn)
			if err != nil || !ok || half.CloseWrite() != nil {
				_ = way.to.Close()
				_ = way.from.Close()
			}
		})
	}
	both.Wait()
}

// keep records a connection, so that close can end it. If close was called, it returns false.
func (f *forward) keep(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.open[conn] = struct{}{}
	}
	return !f.closed
}

func (f *forward) drop(conn net.Conn) {
	f.mu.Lock()
	delete(f.open, conn)
	f.mu.Unlock()
	_ = conn.Close()
}

// close closes the listener and all connections, and returns when all goroutines have ended.
func (f *forward) close() {
	_ = f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for conn := range f.open {
		_ = conn.Close()
	}
	f.mu.Unlock()
	f.group.Wait()
}
