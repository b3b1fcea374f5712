package payloadserver

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// perNode is how many blobs one node is sent at once, of all transfers; a daemon asks for one
	// after the other.
	perNode = 2
	// perNodeWaiting is how many requests of one node are taken at all.
	perNodeWaiting = 8
	// leastRate in bytes per second is what a transfer must keep up with, after a time to begin: a
	// connection that takes less holds a place that others need. At it, 100 MB take half an hour.
	leastRate = 64 << 10
	// handshakeTime is how long a client may take until it has shown its certificate and request.
	handshakeTime = 10 * time.Second
	// maxConnections is how many connections are open at once: several for each node of a large
	// fleet.
	maxConnections = 4096
	// perSourceParts is into how many parts the connections are divided; one address has at most one
	// part. Nodes behind one address share it: it is enough for one connection of each of 500.
	perSourceParts = 8
)

// shares are what each node takes of the server.
type shares struct {
	mu    sync.Mutex
	nodes map[string]*share
}

type share struct {
	requests int
	turns    chan struct{}
}

// take adds a request of a node; false when it has enough of them. leave ends it.
func (s *shares) take(node string) (turns chan struct{}, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[string]*share{}
	}
	own := s.nodes[node]
	if own == nil {
		own = &share{turns: make(chan struct{}, perNode)}
		s.nodes[node] = own
	}
	if own.requests >= perNodeWaiting {
		return nil, nil, false
	}
	own.requests++
	return own.turns, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.requests--; own.requests == 0 {
			delete(s.nodes, node)
		}
	}, true
}

// turn waits for a place; false when there was none in time.
func turn(ctx context.Context, places chan struct{}, timeout <-chan time.Time) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}

// writeDeadline is until when the next piece must be accepted: within the stall, and in time for
// the least rate of the whole.
func writeDeadline(began, now time.Time, written int64) time.Time {
	rate := began.Add(stall + time.Duration(written)*time.Second/leastRate)
	if next := now.Add(stall); next.Before(rate) {
		return next
	}
	return rate
}

// bounded is a listener that closes connections beyond a number, and those beyond its part of one
// address: who has not shown a certificate yet must not keep others out.
type bounded struct {
	net.Listener
	most, perSource int

	mu      sync.Mutex
	all     int
	sources map[string]int
}

func newBounded(listener net.Listener, most int) *bounded {
	return &bounded{Listener: listener, most: most, perSource: max(1, most/perSourceParts), sources: map[string]int{}}
}

// Accept is net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := host(conn)
		if b.enter(source) {
			return &placed{Conn: conn, leave: sync.OnceFunc(func() { b.leave(source) })}, nil
		}
		_ = conn.Close() // one more than we serve
	}
}

func (b *bounded) enter(source string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all >= b.most || b.sources[source] >= b.perSource {
		return false
	}
	b.all++
	b.sources[source]++
	return true
}

func (b *bounded) leave(source string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.sources[source]--; b.sources[source] == 0 {
		delete(b.sources, source)
	}
}

// host is the address that a connection comes from, without its port; of IPv6 it is the /64, of which
// a single machine may use any address.
func host(conn net.Conn) string {
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	address := from.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, 64).Masked().String()
}

// placed gives its place back when it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close is net.Conn.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
