package sshd

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// wire is one TCP connection as the host's network treats it:
//
//	client ── delay line in ──▶ tap ──▶ SSH
//	client ◀── delay line out ── tap ◀── SSH
//
// As long as the network is perfect, reads and writes go straight through; the delay lines start
// when first needed and stay.
type wire struct {
	*tap
	mu        sync.Mutex
	in, out   chan parcel
	unread    parcel
	readErr   error
	writeErr  error
	finishing chan struct{}
	finish    sync.Once
}

// parcel is some bytes and when they arrive.
type parcel struct {
	data []byte
	due  time.Time
	err  error
}

const (
	// parcelSize is a little more than the largest SSH packet of SFTP's 32 KiB chunks, so that one
	// write is one parcel.
	parcelSize = 40 << 10
	// lineLength is how many parcels may be on their way. SSH's own window (2 MiB per channel) is
	// smaller than this many full ones, so the line limits nothing; it bounds memory against a peer
	// that floods.
	lineLength = 1024
)

func newWire(t *tap) *wire { return &wire{tap: t, finishing: make(chan struct{})} }

// Read waits for the next bytes to arrive. Only one goroutine reads, as SSH does.
func (w *wire) Read(p []byte) (int, error) {
	if w.in == nil {
		if !w.network.shaped() {
			return w.tap.Read(p)
		}
		w.in = make(chan parcel, lineLength)
		w.group.Go(w.receive)
	}
	if len(w.unread.data) == 0 {
		if w.readErr != nil {
			return 0, w.readErr
		}
		select {
		case w.unread = <-w.in:
		case <-w.gone:
			return 0, net.ErrClosed
		}
		if err := w.wait(w.unread.due); err != nil {
			return 0, err
		}
		w.readErr = w.unread.err
	}
	n := copy(p, w.unread.data)
	w.unread.data = w.unread.data[n:]
	if n == 0 && len(p) > 0 {
		return 0, w.readErr
	}
	return n, nil
}

// receive takes bytes off the network as they come.
func (w *wire) receive() {
	buffer := make([]byte, parcelSize)
	for {
		n, err := w.tap.Read(buffer)
		arrived := parcel{data: bytes.Clone(buffer[:n]), due: w.network.deliver(&w.network.down, n), err: err}
		select {
		case w.in <- arrived:
		case <-w.gone:
			return
		}
		if err != nil {
			return
		}
	}
}

// Write hands bytes to the network.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.writeErr != nil {
		defer w.mu.Unlock()
		return 0, w.writeErr
	}
	if w.out == nil {
		if !w.network.shaped() {
			w.mu.Unlock()
			return w.tap.Write(p)
		}
		w.out = make(chan parcel, lineLength)
		w.group.Go(w.send)
	}
	w.mu.Unlock()
	for sent := 0; sent < len(p); {
		piece := bytes.Clone(p[sent:min(len(p), sent+parcelSize)])
		select {
		case w.out <- parcel{data: piece, due: w.network.deliver(&w.network.up, len(piece))}:
			sent += len(piece)
		case <-w.gone:
			return sent, net.ErrClosed
		}
	}
	return len(p), nil
}

// send puts bytes on the network when they are due. After Close it sends what is left, then closes.
func (w *wire) send() {
	defer w.cut()
	for {
		var next parcel
		select {
		case next = <-w.out:
		case <-w.gone:
			return
		case <-w.finishing:
			select {
			case next = <-w.out:
			default:
				_ = w.tap.Close() // in good order, so that the peer gets what was sent
				return
			}
		}
		if w.wait(next.due) != nil {
			return
		}
		if _, err := w.tap.Write(next.data); err != nil {
			w.mu.Lock()
			w.writeErr = err
			w.mu.Unlock()
			return
		}
	}
}

// Close ends the connection in good order: what is on its way arrives.
func (w *wire) Close() error {
	w.mu.Lock()
	sending := w.out != nil
	if w.writeErr == nil {
		w.writeErr = net.ErrClosed
	}
	w.mu.Unlock()
	w.finish.Do(func() { close(w.finishing) })
	if sending {
		return nil
	}
	return w.tap.Close()
}

// wait returns at due, or with an error when the connection is gone first.
func (w *wire) wait(due time.Time) error {
	delay := time.Until(due)
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-w.gone:
		return net.ErrClosed
	}
}

var _ net.Conn = (*wire)(nil)
