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
	// Create starts to store a blob under a temporary name. If it is called again for the same blob, it starts again.
	Create(blob contract.Blob) (Pending, error)
}

// Pending is a blob that is being written. Call Commit or Discard once to end it.
type Pending interface {
	io.Writer
	// Commit stores the blob permanently under its digest. Unpack calls it only if the size and the digest are correct.
	Commit() error
	Discard() error
}

// Limits of a stream, to protect its receiver.
const (
	// maxUnwanted is how many bytes of unrequested blobs Unpack skips. An honest sender sends at most the blobs that
	// the host received after its request. A whole payload is smaller than this limit.
	maxUnwanted        = 1 << 30
	maxUnwantedEntries = 1 << 10
	// entryOverhead is the maximum number of bytes that tar adds to an entry: a header and padding.
	entryOverhead = 2 << 10
	// maxWindow is the largest zstd window in bytes that Unpack accepts. RFC 8878 recommends this limit. Operators of
	// older releases send streams with a window of 4 MiB.
	maxWindow = 8 << 20
)

var errTooMuch = errors.New("the stream contains far more than was requested")

// Unpack reads a stream that Pack wrote, and stores the wanted blobs in sink. It doesn't trust the names and sizes in
// the stream: it stores a blob only if its size and digest match a wanted blob. It skips other entries, within limits.
// It needs the same amount of memory for every stream.
//
// stored and missing together are the wanted blobs, even if there is an error. The blobs in stored remain in sink. err
// is a *contract.Problem with the reason PayloadCorrupt if the stream or a blob in the stream is damaged, and with the
// reason PayloadIncomplete if the stream ends before all blobs arrived. err wraps errors of r, sink and ctx. Unpack
// does not read data after the last wanted blob.
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

type unpacking struct {
	sink   Sink
	order  []contract.Blob // the wanted blobs, without duplicates
	sizes  map[string]int64
	stored map[string]bool
	// broken counts entries with the name of a wanted blob but with different content.
	broken int
	// fatal is an error of the sink, the source or the context, and not of the stream.
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

// run stores blobs until all wanted blobs are stored, the stream ends, or an error occurs.
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

// take stores one blob. If the content of the blob doesn't match its size and digest, take discards the blob and counts
// it in broken.
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

// onlyReader hides the method WriteTo of a reader. Otherwise io.CopyBuffer wouldn't use the given buffer.
type onlyReader struct{ io.Reader }

// stop records and returns an error that the stream didn't cause.
func (u *unpacking) stop(err error) error {
	u.fatal = err
	return err
}

// source returns a reader of the compressed stream. The reader records errors, and stops when ctx ends.
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

// bounded returns a reader that fails if the unpacked stream is far longer than the wanted blobs.
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

// writer returns a writer that writes to the sink and records errors of the sink.
func (u *unpacking) writer(w io.Writer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		if err != nil {
			err = u.stop(fmt.Errorf("storing a blob: %w", err))
		}
		return n, err
	})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// classify returns the error to report for an error that occurred while decoding the stream.
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

func (u *unpacking) incomplete() error {
	if u.broken > 0 {
		return contract.NewProblem(contract.ReasonPayloadCorrupt, "%d of %d blobs arrived with other content", u.broken,
			len(u.order))
	}
	return contract.NewProblem(contract.ReasonPayloadIncomplete, "the stream ended after %d of %d blobs", len(u.stored),
		len(u.order))
}
