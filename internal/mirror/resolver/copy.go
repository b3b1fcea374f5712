package resolver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	godigest "github.com/opencontainers/go-digest"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// layer copies a blob, or the last part of a blob, from a source to containerd. It sends the last bytes of a whole blob
// only if the digest matches. If a source fails, layer continues at the same byte of another source.
type layer struct {
	*pull
	source   *reply
	at       mirror.Location
	position int64             // position of the next byte to send
	size     int64             // size of the blob; -1 until it is known
	sum      godigest.Verifier // checks the digest of a whole blob; nil for a part
}

// A blob of up to maxSmall bytes is checked before any byte is sent, so that another source can still be tried.
const maxSmall = 1 << 20

// bufferSize is large enough that the overhead of each read and write is negligible.
const bufferSize = 512 << 10

// copyLayer searches for a source and copies the layer from it to containerd. When the search has ended, copyLayer
// calls `found`.
func (p *pull) copyLayer(ctx context.Context, w http.ResponseWriter, found func()) error {
	l := &layer{pull: p, position: p.offset, size: -1}
	err := l.open(ctx)
	found()
	if err != nil {
		return err
	}
	defer func() { l.source.close() }()
	if p.offset == 0 {
		l.sum = p.target.digest.Verifier()
	}
	if !p.begun {
		l.writeHeader(w)
	}
	sent, err := l.copy(ctx, w)
	if err != nil {
		p.resolver.options.Metrics.serve(l.at.Host, 0, sent)
		return err
	}
	p.served = l.at
	p.resolver.options.Metrics.serve(l.at.Host, 1, sent)
	return nil
}

// open searches for a source that has the bytes from position on, and sets it as the layer's source.
func (l *layer) open(ctx context.Context) error {
	source, at, err := l.ask(ctx, l.position, func(_ context.Context, _ mirror.Location, r *reply) error {
		return l.take(r)
	})
	if err != nil {
		return err
	}
	l.source, l.at = source, at
	return nil
}

// take accepts an answer that contains the bytes from position on, and skips earlier bytes. It checks a small blob
// completely. If take refuses the answer, it returns a fault.
func (l *layer) take(r *reply) error {
	size := l.size
	if size < 0 {
		size = r.size
	}
	if f := l.contradiction(r, size); f != nil {
		return f
	}
	skipped, err := io.CopyN(io.Discard, r.body, l.position-r.offset)
	if errors.Is(err, io.EOF) {
		return faultf(ReasonWrongContent, "it has only %d bytes", skipped)
	}
	if err != nil {
		return err
	}
	if isFirst := l.source == nil; isFirst && size >= 0 && size <= maxSmall && !l.ranged {
		content, err := readWhole(r, maxSmall)
		if err != nil {
			return err
		}
		if !matches(l.target.digest, content) {
			return faultf(ReasonWrongContent, "the digest is another")
		}
		r.body.ahead.Reset(bytes.NewReader(content))
	}
	l.size = size
	return nil
}

// contradiction returns a fault if an answer can't be the rest of a blob of this size. `size` is -1 if it is unknown.
func (l *layer) contradiction(r *reply, size int64) error {
	switch {
	case r.size >= 0 && r.size != size:
		return faultf(ReasonWrongContent, "it has %d bytes instead of %d", r.size, size)
	case r.status == http.StatusPartialContent && r.offset != l.position:
		return faultf(ReasonWrongContent, "it gives another range")
	case size < 0 && l.ranged:
		return faultf(ReasonFailing, "it does not say how large it is")
	case size >= 0 && size <= l.position && l.position > 0:
		return faultf(ReasonWrongContent, "it has only %d bytes", size)
	}
	return nil
}

func (l *layer) writeHeader(w http.ResponseWriter) {
	if !l.ranged {
		l.writeLayerHeader(w, http.StatusOK, l.size)
		return
	}
	w.Header().Set("Content-Range", contentRange(l.offset, l.size))
	l.writeLayerHeader(w, http.StatusPartialContent, l.size-l.offset)
}

// writeLayerHeader writes the header of a layer. length is -1 if it is unknown.
func (p *pull) writeLayerHeader(w http.ResponseWriter, status int, length int64) {
	h := w.Header()
	h.Set("Content-Type", octets)
	h.Set("Docker-Content-Digest", p.target.digest.String())
	h.Set("Accept-Ranges", "bytes")
	h.Set("ETag", strconv.Quote(p.target.digest.String()))
	if length >= 0 {
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	w.WriteHeader(status)
	p.begun = true
}

// copy sends bytes to the client until the layer is complete. It returns the number of bytes that it has sent. If the
// layer isn't complete, the error is errBroken, errUnread or the context's error.
func (l *layer) copy(ctx context.Context, w http.ResponseWriter) (sent int64, err error) {
	buffer := l.resolver.buffers.Get().(*[bufferSize]byte)
	defer l.resolver.buffers.Put(buffer)
	for l.size < 0 || l.position < l.size {
		n, reading := l.read(buffer[:])
		l.position += int64(n)
		if l.size < 0 && errors.Is(reading, io.EOF) {
			l.size = l.position
		}
		if l.sum != nil {
			_, _ = l.sum.Write(buffer[:n])
			if l.position == l.size && !l.sum.Verified() {
				l.failed(l.at, faultf(ReasonWrongContent, "the digest is another"))
				return sent, errBroken
			}
		}
		if err = write(w, buffer[:n]); err != nil {
			return sent, err
		}
		sent += int64(n)
		if reading != nil && l.position != l.size {
			if err = l.resume(ctx, reading); err != nil {
				return sent, err
			}
		}
	}
	return sent, nil
}

// read fills the buffer from the source. Exception: the first read returns as soon as some bytes have arrived.
func (l *layer) read(buffer []byte) (int, error) {
	if l.size >= 0 {
		buffer = buffer[:min(int64(len(buffer)), l.size-l.position)]
	}
	if l.position == l.offset {
		return l.source.body.Read(buffer)
	}
	n, err := io.ReadFull(l.source.body, buffer)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// resume continues the layer from another source after the current source failed with the error `why`. If there is no
// other source, it may try the same source again.
func (l *layer) resume(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(why, io.EOF) {
		why = faultf(ReasonBrokenOff, "ended early")
	}
	l.source.close()
	l.failed(l.at, faultOf(ctx, why))
	l.deadline = time.Now().Add(l.resolver.options.LastFirstByte)
	err := l.open(ctx)
	if errors.Is(err, errNowhere) {
		return errBroken
	}
	return err
}

// clientStall is the maximum time until containerd reads what was sent. containerd writes to a disk, which can be busy.
const clientStall = 5 * time.Minute

// write sends bytes to the client. If sending fails or takes longer than clientStall, write returns errUnread.
func write(w http.ResponseWriter, content []byte) error {
	// Ignore the error: in tests, the ResponseWriter doesn't support deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(clientStall))
	if _, err := w.Write(content); err != nil {
		return errUnread
	}
	return nil
}
