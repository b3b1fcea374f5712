package sshhost

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// wire is a TCP connection that remembers when it last heard something, and its first error. The
// error tells a connection that broke from a peer that said no, without reading the words of
// either.
type wire struct {
	net.Conn
	began time.Time
	heard atomic.Int64 // nanoseconds after began

	mu    sync.Mutex
	first error
}

func newWire(conn net.Conn) *wire { return &wire{Conn: conn, began: time.Now()} }

// Read is net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.began)))
	}
	w.note(err)
	return n, err
}

// Write is net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.note(err)
	return n, err
}

func (w *wire) note(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		w.first = err
	}
}

// broken is the first error of reading or writing; nil when there was none.
func (w *wire) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first
}

// silence is how long nothing was heard.
func (w *wire) silence() time.Duration {
	return time.Since(w.began) - time.Duration(w.heard.Load())
}
