package sshd

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// wire is one TCP connection. It has the latency and the bandwidth of the host's network:
//
//	client ── delay line in ──▶ tap ──▶ SSH
//	client ◀── delay line out ── tap ◀── SSH
//
// If the network has neither latency nor a limited bandwidth, reads and writes don't use the delay lines. The delay
// lines start when they are first needed, and then run until the connection ends.
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

// parcel is data in transit. It has a time of arrival.
type parcel struct {
	data []byte
	due  time.Time
	err  error
}

const (
	// parcelSize is slightly larger than the largest SSH packet with an SFTP chunk of 32 KiB. So each write of SSH is
	// one parcel.
	parcelSize = 40 << 10
	// lineLength is the maximum number of parcels in transit. It limits memory if a peer floods the connection. It
	// doesn't limit throughput, because SSH has at most 2 MiB in transit for each channel.
	lineLength = 1024
)

func newWire(t *tap) *wire { return &wire{tap: t, finishing: make(chan struct{})} }

// Read waits until bytes arrive. Only one goroutine may call it. Package ssh calls it from one goroutine.
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

// receive reads bytes from the network when they arrive, and puts them into the delay line.
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

// Write puts bytes into the delay line to the network.
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

// send takes bytes from the delay line and writes them to the network when they are due. After Close, it sends the
// remaining bytes and closes the connection.
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
				_ = w.tap.Close() // so that the peer receives all data that was sent
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

// Close closes the connection after all data in transit has arrived.
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

// wait sleeps until the time in due. If the connection ends first, wait returns an error.
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
