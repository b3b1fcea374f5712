package payloadserver

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// maxConnections is the maximum number of open connections without a request. It is enough for several connections from
// each node of a large fleet.
const maxConnections = 4096

// `bounded` is a listener that always accepts connections. If too many connections without a request are open,
// `bounded` closes the oldest one. Otherwise a client could open connections, send nothing and block daemons. A
// connection with a request isn't closed, because it ends with its response. `shares` limits the requests of each node.
type bounded struct {
	net.Listener
	silent chan *connection       // oldest connection first; some have already ended or sent a request
	failed *prometheus.CounterVec // failed connections, by reason
}

func newBounded(listener net.Listener, most int, failed *prometheus.CounterVec) *bounded {
	return &bounded{Listener: listener, silent: make(chan *connection, most), failed: failed}
}

// Accept implements net.Listener. http.Server never calls Accept concurrently.
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

// connection is a client's connection. If it ends before the client has sent a request, it counts as failed.
type connection struct {
	net.Conn
	failed *prometheus.CounterVec
	// `settled` is true if the connection has ended, or if the client has sent a request.
	settled atomic.Bool
}

// end closes a connection whose client has not sent a request yet, and counts it as failed.
func (c *connection) end(reason string) {
	if c.settled.CompareAndSwap(false, true) {
		c.failed.WithLabelValues(reason).Inc()
		_ = c.Conn.Close()
	}
}

func (c *connection) Close() error {
	c.end(failedCertificate)
	return c.Conn.Close()
}

type connectionKey struct{}

// connContext adds the *connection to the context of a request. http.Server calls it through the field ConnContext.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, conn)
}

// `spoken` records that the client of a connection has sent a request. ctx is the context of the request.
func spoken(ctx context.Context) {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		c.settled.Store(true)
	}
}
