package payload

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Sink stores unpacked blobs. The daemon implements it on its store.
type Sink interface {
	// Create begins to store a blob under a temporary name. A repeated call starts again.
	Create(blob contract.Blob) (Pending, error)
}

// Pending is a blob that is being written. Call Commit or Discard once to end it.
type Pending interface {
	io.Writer
	// Commit makes the blob permanent under its digest. It is called only if size and digest are correct.
	Commit() error
	// Discard deletes the blob.
	Discard() error
}

// Limits of a stream, to protect its receiver.
const (
	// maxUnwanted limits the unrequested bytes that are skipped: an honest sender includes at most the files that
	// arrived since the request, so a whole payload is plenty.
	maxUnwanted = 1 << 30
	// maxUnwantedEntries limits the unrequested entries.
	maxUnwantedEntries = 1 << 10
	// entryOverhead is the size that tar adds to an entry: header and padding.
	entryOverhead = 2 << 10
	// maxWindow is the largest accepted zstd window in bytes, as RFC 8878 recommends. Earlier operators used 4 MiB.
	maxWindow = 8 << 20
)

// errTooMuch ends a stream that is far too long.
var errTooMuch = errors.New("the stream contains far more than was requested")

// Unpack reads a stream of Pack and writes the wanted blobs to sink. Names and sizes in the stream are only claims: a
// stored blob has the size and the digest that the caller wants. Other entries are skipped, within limits. Memory does
// not depend on the stream.
//
// stored and missing together are the wanted blobs, also if there is an error; complete blobs are kept. err is a
// *contract.Problem PayloadCorrupt if the stream or a blob in it is damaged, and PayloadIncomplete if the stream ends
// before all blobs arrived. Errors of r, sink and ctx are wrapped. Data after the last wanted blob is not read.
func Unpack(ctx context.Context, r io.Reader, want []contract.Blob, sink Sink) (stored []string,
	missing []contract.Blob, err error) {
	u := newUnpacking(want, sink)
	err = u.run(ctx, r)
	for _, b := range u.order {
		if u.stored[b.Digest] {
			stored = append(stored, b.Digest)
		} else {
			missing = append(missing, b)
		}
	}
	if len(missing) == 0 && u.fatal == nil {
		return stored, nil, nil
	}
	return stored, missing, err
}

// unpacking is one run of Unpack.
type unpacking struct {
	sink   Sink
	order  []contract.Blob // wanted, each digest once
	sizes  map[string]int64
	stored map[string]bool
	// broken counts the wanted blobs that came with other content.
	broken int
	// fatal is an error of the sink, the source or the context. The stream didn't cause it.
	fatal error
	buf   []byte
}

func newUnpacking(want []contract.Blob, sink Sink) *unpacking {
	u := &unpacking{sink: sink, sizes: map[string]int64{}, stored: map[string]bool{}, buf: make([]byte, 128<<10)}
	for _, b := range want {
		if _, seen := u.sizes[b.Digest]; !seen {
			u.sizes[b.Digest] = b.Size
			u.order = append(u.order, b)
		}
	}
	return u
}

// run unpacks until all wanted blobs are stored, or the stream ends or fails.
func (u *unpacking) run(ctx context.Context, r io.Reader) error {
	z, err := zstd.NewReader(u.source(ctx, r),
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return u.classify(err)
	}
	defer z.Close()
	t := tar.NewReader(u.bounded(z))
	for unwanted := 0; len(u.stored) < len(u.order); {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			return u.incomplete()
		}
		if err != nil {
			return u.classify(err)
		}
		size, wanted := u.sizes[header.Name]
		if header.Typeflag != tar.TypeReg || !wanted || u.stored[header.Name] {
			if unwanted++; unwanted > maxUnwantedEntries {
				return u.classify(errTooMuch)
			}
			continue
		}
		if header.Size != size {
			u.broken++
			continue
		}
		if err = u.take(t, contract.Blob{Digest: header.Name, Size: size}); err != nil {
			return u.classify(err)
		}
	}
	return nil
}

// take stores one blob. If its content doesn't match, take discards it and counts it as broken.
func (u *unpacking) take(r io.Reader, b contract.Blob) error {
	pending, err := u.sink.Create(b)
	if err != nil {
		return u.stop(fmt.Errorf("storing blob %.16s: %w", b.Digest, err))
	}
	hash := sha256.New()
	n, err := io.CopyBuffer(io.MultiWriter(hash, u.writer(pending)), onlyReader{io.LimitReader(r, b.Size)}, u.buf)
	right := err == nil && n == b.Size && hex.EncodeToString(hash.Sum(nil)) == b.Digest
	if !right {
		if err == nil {
			u.broken++
		}
		if discardErr := pending.Discard(); discardErr != nil && u.fatal == nil {
			return u.stop(fmt.Errorf("discarding blob %.16s: %w", b.Digest, discardErr))
		}
		return err
	}
	if err = pending.Commit(); err != nil {
		return u.stop(fmt.Errorf("storing blob %.16s: %w", b.Digest, err))
	}
	u.stored[b.Digest] = true
	return nil
}

// onlyReader hides a WriterTo, so that io.CopyBuffer uses the given buffer.
type onlyReader struct{ io.Reader }

// stop records an error that the stream didn't cause.
func (u *unpacking) stop(err error) error {
	u.fatal = err
	return err
}

// source reads the compressed stream and records read errors.
func (u *unpacking) source(ctx context.Context, r io.Reader) io.Reader {
	r = until(ctx, r)
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if err != nil && !errors.Is(err, io.EOF) {
			err = u.stop(fmt.Errorf("reading the stream: %w", err))
		}
		return n, err
	})
}

// bounded ends a stream if it unpacks to far more than the wanted size.
func (u *unpacking) bounded(r io.Reader) io.Reader {
	left := int64(maxUnwanted) + maxUnwantedEntries*entryOverhead
	for _, b := range u.order {
		left += b.Size + entryOverhead
	}
	return readerFunc(func(p []byte) (int, error) {
		if left <= 0 {
			return 0, errTooMuch
		}
		n, err := r.Read(p[:min(int64(len(p)), left)])
		left -= int64(n)
		return n, err
	})
}

// writer writes to the sink and records its errors.
func (u *unpacking) writer(w io.Writer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		if err != nil {
			err = u.stop(fmt.Errorf("storing a blob: %w", err))
		}
		return n, err
	})
}

// writerFunc is an io.Writer from a function.
type writerFunc func(p []byte) (int, error)

// Write is io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// classify returns the problem for a decoding error.
func (u *unpacking) classify(err error) error {
	switch {
	case u.fatal != nil:
		return u.fatal
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return u.incomplete()
	}
	return contract.NewProblem(contract.ReasonPayloadCorrupt, "unpacking the stream after %d of %d blobs: %v",
		len(u.stored), len(u.order), err)
}

// incomplete returns the problem if the stream ended before all wanted blobs arrived.
func (u *unpacking) incomplete() error {
	if u.broken > 0 {
		return contract.NewProblem(contract.ReasonPayloadCorrupt, "%d of %d blobs arrived with other content", u.broken,
			len(u.order))
	}
	return contract.NewProblem(contract.ReasonPayloadIncomplete, "the stream ended after %d of %d blobs", len(u.stored),
		len(u.order))
}
