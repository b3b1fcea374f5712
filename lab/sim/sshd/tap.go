package sshd

import (
	"errors"
	"net"
	"sync"
)

// tap counts the bytes of a connection where they enter and leave the host. It can also stop the traffic of the
// connection or cut the connection.
type tap struct {
	net.Conn
	network *network
	group   *sync.WaitGroup
	gone    chan struct{}
	end     sync.Once

	mu   sync.Mutex
	drop *Drop
	left int64
}

func newTap(conn net.Conn, n *network, group *sync.WaitGroup) *tap {
	n.counters.connections.Add(1)
	n.counters.open.Add(1)
	return &tap{Conn: conn, network: n, group: group, gone: make(chan struct{})}
}

var errDropped = errors.New("connection cut by the simulated network")

func (t *tap) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.network.counters.in.Add(int64(n))
	if stopped := t.thaw(); stopped != nil {
		return 0, stopped
	}
	if allowed := t.pass(n); allowed < n {
		t.cut()
		return allowed, errDropped
	}
	return n, err
}

func (t *tap) Write(p []byte) (int, error) {
	if stopped := t.thaw(); stopped != nil {
		return 0, stopped
	}
	allowed := t.pass(len(p))
	n, err := t.Conn.Write(p[:allowed])
	t.network.counters.out.Add(int64(n))
	if allowed < len(p) {
		t.cut()
		return n, errDropped
	}
	return n, err
}

// thaw waits until the network isn't frozen.
func (t *tap) thaw() error {
	for {
		s := t.network.settings()
		if !s.Faults.Frozen {
			return nil
		}
		select {
		case <-s.replaced:
		case <-t.gone:
			return net.ErrClosed
		}
	}
}

// pass returns how many of the next bytes may pass before the connection is cut: at most size.
func (t *tap) pass(size int) int {
	s := t.network.settings()
	drop := s.Faults.Drop
	if drop == nil {
		return size
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drop != drop {
		t.drop, t.left = drop, drop.draw()
	}
	if t.left >= int64(size) {
		t.left -= int64(size)
		return size
	}
	if !spend(s.drops) {
		return size
	}
	return int(t.left)
}

// Close closes the connection. Data in transit still arrives.
func (t *tap) Close() error { return t.leave(func() {}) }

// cut resets the connection. Data in transit is lost. If the connection has already ended, cut does nothing.
func (t *tap) cut() {
	_ = t.leave(func() {
		if c, ok := t.Conn.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
	})
}

func (t *tap) leave(before func()) (err error) {
	t.end.Do(func() {
		close(t.gone)
		before()
		err = t.Conn.Close()
		t.network.counters.open.Add(-1)
	})
	return err
}
