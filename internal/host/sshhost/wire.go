package sshhost

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// handshakeBudget is how many bytes a host may send before the login is done. A key exchange and
	// a login take less than 10 KiB, and some hosts send a banner.
	handshakeBudget = 256 << 10
	// stepBudget is how many bytes a host may send during one step, such as a call: the longest
	// answer, and the same again for what SSH and SFTP put around it.
	stepBudget = 2 * maxAnswer
	// acknowledgement is the part of what we send that a host may send beyond that, to acknowledge
	// it: OpenSSH takes some 100 bytes for each 32 KiB.
	acknowledgement = 8
	// maxFirst is how much is remembered of what a host sends first. Its offer for the key exchange is in the first
	// two KiB, and no host says much before it.
	maxFirst = 16 << 10
)

// errFlood ends a connection over which the host sent more than any honest one.
var errFlood = errors.New("the host sends without end")

// wire is a TCP connection that remembers when it last heard something, and its first error. The
// error tells a connection that broke from a peer that said no, without reading the words of
// either. It ends the connection of a host that sends more than its budget.
type wire struct {
	net.Conn
	clock clock.PassiveClock
	began time.Time
	heard atomic.Int64 // nanoseconds after began
	// budget is how many more bytes the host may send.
	budget atomic.Int64

	mu    sync.Mutex
	first error
	// sent is what the host sent first: see offered.
	sent []byte
}

func newWire(conn net.Conn, c clock.PassiveClock) *wire {
	w := &wire{Conn: conn, clock: c, began: c.Now()}
	w.budget.Store(handshakeBudget)
	return w
}

// beginStep gives the host the budget of a step. What was left of the last one is gone.
func (w *wire) beginStep() { w.budget.Store(stepBudget) }

// Read is net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(int64(w.clock.Since(w.began)))
		w.keep(p[:n])
	}
	if w.budget.Add(-int64(n)) < 0 {
		w.note(errFlood)
		return 0, errFlood
	}
	w.note(err)
	return n, err
}

// Write is net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.budget.Add(int64(len(p)) / acknowledgement)
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

// keep remembers what the host sends first.
func (w *wire) keep(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, p[:min(len(p), maxFirst-len(w.sent))]...)
}

// offered are the host key algorithms that the host offered when the connection began.
func (w *wire) offered() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return offered(w.sent)
}

// broken is the first error of reading or writing; nil when there was none.
func (w *wire) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first
}

// silence is how long nothing was heard.
func (w *wire) silence() time.Duration {
	return w.clock.Since(w.began) - time.Duration(w.heard.Load())
}
