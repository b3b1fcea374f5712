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
	// handshakeBudget is how many bytes a host may send before the login is complete. A key exchange and a
	// login take less than 10 KiB, and some hosts send a banner.
	handshakeBudget = 256 << 10
	// stepBudget is how many bytes a host may send during one step, such as a call: the longest answer, plus
	// the same size for the overhead of SSH and SFTP.
	stepBudget = 2 * maxAnswer
	// acknowledgement is how many bytes the operator must send before the host may send one more byte. OpenSSH
	// acknowledges each 32 KiB with about 100 bytes.
	acknowledgement = 8
	// maxFirst is how many of a host's first bytes are kept. The key exchange offer is in the first two KiB,
	// and no host sends much before it.
	maxFirst = 16 << 10
)

var errFlood = errors.New("the host sends more data than any step needs")

// wire is a TCP connection that records its first error and when it last received data. The recorded error shows
// whether the connection broke or the peer refused an operation, so callers don't need to parse error texts. If a host
// sends more than its budget, reads from the connection fail.
type wire struct {
	net.Conn
	clock clock.PassiveClock
	began time.Time
	heard atomic.Int64 // when the host last sent data, in nanoseconds after began
	// budget is the number of bytes that the host may still send.
	budget atomic.Int64

	mu    sync.Mutex
	first error
	// sent contains the first bytes that the host sent: see offered.
	sent []byte
}

func newWire(conn net.Conn, c clock.PassiveClock) *wire {
	w := &wire{Conn: conn, clock: c, began: c.Now()}
	w.budget.Store(handshakeBudget)
	return w
}

// beginStep sets the budget of a step. The rest of the previous budget expires.
func (w *wire) beginStep() { w.budget.Store(stepBudget) }

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

func (w *wire) keep(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, p[:min(len(p), maxFirst-len(w.sent))]...)
}

func (w *wire) offered() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return offered(w.sent)
}

func (w *wire) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.first
}

func (w *wire) silence() time.Duration {
	return w.clock.Since(w.began) - time.Duration(w.heard.Load())
}
