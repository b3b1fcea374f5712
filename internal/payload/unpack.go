package payload

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Put stores one blob. It calls `write` once, with a writer for the content. If the content doesn't match the blob's
// digest, Put stores nothing and returns a *contract.Problem with the reason PayloadCorrupt. The daemon's store
// implements Put.
type Put func(blob contract.Blob, write func(w io.Writer) error) error

// Limits of a stream, to protect its receiver.
const (
	// maxUnwanted is how many bytes of unrequested blobs Unpack skips. An honest sender sends such a blob only if the
	// host received it after the request. A whole payload is smaller than this limit.
	maxUnwanted        = 1 << 30
	maxUnwantedEntries = 1 << 10
	// entryOverhead is the maximum number of bytes that tar adds to an entry: a header and padding.
	entryOverhead = 2 << 10
	// maxWindow is the largest zstd window in bytes that Unpack accepts. RFC 8878 recommends this limit. Operators of
	// older releases send streams with a window of 4 MiB.
	maxWindow = 8 << 20
)

var errTooMuch = errors.New("the stream contains far more than was requested")

// Unpack reads a stream that Pack wrote, and stores the wanted blobs with put. It doesn't trust the names and sizes in
// the stream: it stores a blob only if its size and digest match a wanted blob. It skips other entries, within limits.
// It needs the same amount of memory for every stream, and does not read data after the last wanted blob.
//
// If Unpack returns an error, the blobs that it has stored remain. If the stream or a blob in it is damaged, the error
// is a *contract.Problem with the reason PayloadCorrupt. If the stream ends before all blobs arrived, the reason is
// PayloadIncomplete. The error wraps errors of r and put.
func Unpack(r io.Reader, want []contract.Blob, put Put) error {
	u := &unpacking{put: put, sizes: map[string]int64{}, stored: map[string]bool{}, buf: make([]byte, 128<<10)}
	for _, b := range want {
		u.sizes[b.Digest] = b.Size
	}
	return u.run(r)
}

type unpacking struct {
	put    Put
	sizes  map[string]int64 // of the wanted blobs
	stored map[string]bool
	// `broken` counts entries with the name of a wanted blob but with different content.
	broken int
	// fatal is an error of `put` or of the reader, but not of the stream's content.
	fatal error
	buf   []byte
}

// run stores blobs until all wanted blobs are stored, the stream ends, or an error occurs.
func (u *unpacking) run(r io.Reader) error {
	z, err := zstd.NewReader(u.source(r),
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return u.classify(err)
	}
	defer z.Close()
	t := tar.NewReader(u.bounded(z))
	for unwanted := 0; len(u.stored) < len(u.sizes); {
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

// take stores one blob. If the content of the blob has a different digest, take counts the blob in broken.
func (u *unpacking) take(r io.Reader, b contract.Blob) error {
	var copying error
	err := u.put(b, func(w io.Writer) error {
		_, copying = io.CopyBuffer(u.writer(w), onlyReader{io.LimitReader(r, b.Size)}, u.buf)
		return copying
	})
	p, is := contract.AsProblem(err)
	switch {
	case copying != nil:
		return copying
	case is && p.Reason == contract.ReasonPayloadCorrupt:
		u.broken++
	case err != nil:
		return u.stop(fmt.Errorf("storing blob %.16s: %w", b.Digest, err))
	default:
		u.stored[b.Digest] = true
	}
	return nil
}

// onlyReader hides the method WriteTo of a reader. Otherwise io.CopyBuffer wouldn't use the given buffer.
type onlyReader struct{ io.Reader }

// stop records and returns an error that the stream didn't cause.
func (u *unpacking) stop(err error) error {
	u.fatal = err
	return err
}

// source returns a reader that reads the compressed stream and records errors.
func (u *unpacking) source(r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		if err != nil && !errors.Is(err, io.EOF) {
			err = u.stop(fmt.Errorf("reading the stream: %w", err))
		}
		return n, err
	})
}

// `bounded` returns a reader that fails if the unpacked stream is far longer than the wanted blobs.
func (u *unpacking) bounded(r io.Reader) io.Reader {
	left := int64(maxUnwanted) + maxUnwantedEntries*entryOverhead
	for _, size := range u.sizes {
		left += size + entryOverhead
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

// writer returns a writer that writes to w and records errors of w.
func (u *unpacking) writer(w io.Writer) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		if err != nil {
			err = u.stop(fmt.Errorf("storing a blob: %w", err))
		}
		return n, err
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// writerFunc is a function that implements io.Writer.
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
		len(u.stored), len(u.sizes), err)
}

func (u *unpacking) incomplete() error {
	if u.broken > 0 {
		return contract.NewProblem(contract.ReasonPayloadCorrupt, "%d of %d blobs arrived with other content", u.broken,
			len(u.sizes))
	}
	return contract.NewProblem(contract.ReasonPayloadIncomplete, "the stream ended after %d of %d blobs", len(u.stored),
		len(u.sizes))
}
