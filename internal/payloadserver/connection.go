package payloadserver

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// maxConnections is the maximum number of open connections without a request: several for each node of a large
// fleet.
const maxConnections = 4096

// bounded is a listener that always has room: if too many connections are open without a request, it closes the oldest
// of them. Otherwise a client that opens connections and stays silent would keep daemons out. A connection with a
// request ends with its response; see shares for the limit of a node.
type bounded struct {
	net.Listener
	silent chan *connection       // oldest connection first; some have ended or sent a request
	failed *prometheus.CounterVec // by reason
}

func newBounded(listener net.Listener, most int, failed *prometheus.CounterVec) *bounded {
	return &bounded{Listener: listener, silent: make(chan *connection, most), failed: failed}
}

// Accept implements net.Listener. http.Server calls it in one goroutine.
func (b *bounded) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if len(b.silent) == cap(b.silent) {
		(<-b.silent).end(failedFull)
	}
	c := &connection{Conn: conn, failed: b.failed}
	b.silent <- c
	return c, nil
}

// connection is silent until it sends a request. Before that, its certificate is verified.
type connection struct {
	net.Conn
	failed *prometheus.CounterVec
	// settled is set when the connection has ended or sent a request.
	settled atomic.Bool
}

// end closes a connection that is still silent, and counts it.
func (c *connection) end(reason string) {
	if c.settled.CompareAndSwap(false, true) {
		c.failed.WithLabelValues(reason).Inc()
		_ = c.Conn.Close()
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.end(failedCertificate)
	return c.Conn.Close()
}

// connectionKey is the key of the *connection in the context of a request.
type connectionKey struct{}

// connContext is http.Server.ConnContext.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// spoken records that the connection of a request is no longer silent.
func spoken(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.settled.Store(true)
	}
}
