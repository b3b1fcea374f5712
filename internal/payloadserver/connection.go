package payloadserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxConnections is how many connections are open at once: several for each node of a large
	// fleet.
	maxConnections = 4096
	// perSourceParts is into how many parts the connections are divided; one address has at most one
	// part. Nodes behind one address share it: it is enough for one connection of each of 500.
	perSourceParts = 8
	// perNodeConnections is how many connections of one node's daemon stay open, whoever comes; a
	// daemon needs one.
	perNodeConnections = 16
)

// bounded is a listener that closes the oldest connection of a stranger where there are too many in all, and
// the oldest one of an address where that has more than its part: they must not keep others out, of the same address
// neither. A stranger is who has not asked for anything as the daemon of a known node, and what such a node has above
// its part.
type bounded struct {
	net.Listener
	most, perSource int
	failed          *prometheus.CounterVec // by reason

	mu        sync.Mutex
	all       int
	sources   map[string]int
	nodes     map[string]int // connections that stay
	strangers list.List      // of *placed, the oldest first
}

func newBounded(listener net.Listener, most int, failed *prometheus.CounterVec) *bounded {
	return &bounded{Listener: listener, most: most, perSource: max(1, most/perSourceParts), failed: failed,
		sources: map[string]int{}, nodes: map[string]int{}}
}

// Accept is net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := &placed{Conn: conn, listener: b, source: host(conn)}
		closing := b.enter(p)
		if closing != nil {
			b.failed.WithLabelValues(failedFull).Inc()
			_ = closing.Conn.Close()
		}
		if closing != p {
			return p, nil
		}
	}
}

// enter gives a connection a place, and returns which one has to be closed: none, one that had its
// place, or itself.
func (b *bounded) enter(p *placed) (closing *placed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.sources[p.source] >= b.perSource:
		closing = b.oldest(func(q *placed) bool { return q.source == p.source })
	case b.all >= b.most:
		closing = b.oldest(func(*placed) bool { return true })
	default:
		b.add(p)
		return nil
	}
	if closing == nil {
		return p
	}
	b.remove(closing)
	b.add(p)
	return closing
}

// oldest is the oldest connection of a stranger that may go, or nil.
func (b *bounded) oldest(mayGo func(p *placed) bool) *placed {
	for e := b.strangers.Front(); e != nil; e = e.Next() {
		if p, ok := e.Value.(*placed); ok && mayGo(p) {
			return p
		}
	}
	return nil
}

func (b *bounded) add(p *placed) {
	b.all++
	b.sources[p.source]++
	p.stranger = b.strangers.PushBack(p)
}

// leave frees the place of a connection that ended. Repeated, it does nothing.
func (b *bounded) leave(p *placed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !p.asked && !p.left {
		b.failed.WithLabelValues(failedCertificate).Inc()
	}
	b.remove(p)
}

func (b *bounded) remove(p *placed) {
	if p.left {
		return
	}
	p.left = true
	b.all--
	if b.sources[p.source]--; b.sources[p.source] == 0 {
		delete(b.sources, p.source)
	}
	if p.stranger != nil {
		b.strangers.Remove(p.stranger)
		return
	}
	if b.nodes[p.node]--; b.nodes[p.node] == 0 {
		delete(b.nodes, p.node)
	}
}

// keep says that a connection brought a request, so after the handshake, in which its certificate was verified: as the
// daemon of a known node, or of nobody where that is empty. It returns whether the connection stays from now on, and
// so not where the node has its part. Repeated, it adds nothing.
func (b *bounded) keep(p *placed, node string) (stays bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.asked = true
	switch {
	case node == "" || p.left:
		return false
	case p.stranger == nil:
		return true
	case b.nodes[node] >= perNodeConnections:
		return false
	}
	b.strangers.Remove(p.stranger)
	p.stranger, p.node = nil, node
	b.nodes[node]++
	return true
}

// connectionKey is where the context of a request has its *placed.
type connectionKey struct{}

// connContext is http.Server's.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// keep is bounded's, for the connection of a request.
func keep(ctx context.Context, node string) (stays bool) {
	p, ok := ctx.Value(connectionKey{}).(*placed)
	return ok && p.listener.keep(p, node)
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

// placed is a connection that has a place, and gives it back when it is closed.
type placed struct {
	net.Conn
	listener *bounded
	source   string
	left     bool          // its place was given back
	asked    bool          // it brought a request
	stranger *list.Element // nil once it stays
	node     string        // whose daemon's it is, once it stays
}

// Close is net.Conn.
func (p *placed) Close() error {
	defer p.listener.leave(p)
	return p.Conn.Close()
}
