package payload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	// barren is how many attempts in a row may receive nothing before Fetch fails. The caller retries later.
	barren = 5
	// firstRetry is the pause after an attempt that fetched nothing. The pause doubles up to longestRetry. If a busy
	// source says when to retry, the fetcher waits that long instead.
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// Source provides blobs by digest, such as the operator's payload server.
type Source interface {
	// Open returns a reader for the content of all blobs, in the order of digests. The first blob starts at the offset
	// (in bytes). The reader may end before the last blob. If the source is busy, the error is a *Busy.
	Open(ctx context.Context, digests []string, offset int64) (io.ReadCloser, error)
}

// Busy means that a source can't accept a request now.
type Busy struct {
	// After is the time to wait before the retry.
	After time.Duration
}

func (b *Busy) Error() string { return "the source is busy for " + b.After.String() }

// Fetcher fetches blobs. All fields are required.
type Fetcher struct {
	Source Source
	Store  *Store
	System winos.System
	// Headroom is the disk space in bytes that must remain free for others after all blobs have been stored and copied
	// to their paths.
	Headroom int64
	Clock    clock.Clock
}

// Bring fetches the wanted blobs that the store lacks.
func Bring(ctx context.Context, system winos.System, source Source, store *Store, want []contract.Blob) error {
	f := Fetcher{Source: source, Store: store, System: system, Clock: clock.RealClock{}}
	_, err := f.Fetch(ctx, want)
	return err
}

// Fetch fetches the wanted blobs that the store lacks, one after the other, and returns the number of received bytes.
// First, it checks that the disk has space for all blobs, and for a copy of each. Its errors are, or wrap,
// *contract.Problem with DiskFull, PayloadCorrupt or PayloadIncomplete. A repeated call continues with the missing
// blobs.
func (f *Fetcher) Fetch(ctx context.Context, want []contract.Blob) (received int64, err error) {
	missing, err := f.Store.Missing(want)
	if err != nil || len(missing) == 0 {
		return 0, err
	}
	if err = f.room(ctx, missing); err != nil {
		return 0, err
	}
	var body io.ReadCloser // one response for all blobs, if the source sends all of them
	defer func() { err = errors.Join(err, closed(&body)) }()
	for i, blob := range missing {
		var n int64
		err = f.Store.put(blob, ".fetched.tmp", func(w io.Writer) error {
			return f.fill(ctx, missing[i:], &body, &counted{to: w, n: &n})
		})
		if received += n; err != nil {
			return received, fmt.Errorf("fetching blob %.16s: %w", blob.Digest, err)
		}
	}
	return received, nil
}

func closed(body *io.ReadCloser) (err error) {
	if *body != nil {
		err = (*body).Close()
		*body = nil
	}
	return err
}

func (f *Fetcher) room(ctx context.Context, missing []contract.Blob) error {
	need := f.Headroom
	for _, blob := range missing {
		need += 2 * blob.Size
	}
	facts, err := f.System.Facts(ctx)
	if err != nil {
		return fmt.Errorf("reading the free space of the disk: %w", err)
	}
	if free := facts.DiskFree; free < need {
		return contract.NewProblem(contract.ReasonDiskFull, "%d MiB are free and %d MiB are needed", free>>20, need>>20)
	}
	return nil
}

// fill writes the first of `blobs` to w. It gives up after `barren` attempts in a row that receive nothing. If *body
// isn't nil, its next byte is the first byte of this blob. If fill succeeds, the next byte of *body is the first byte
// after this blob.
func (f *Fetcher) fill(ctx context.Context, blobs []contract.Blob, body *io.ReadCloser, w *counted) error {
	var pause time.Duration
	for tries := 0; *w.n < blobs[0].Size; {
		before, goesOn := *w.n, *body != nil
		err := f.attempt(ctx, blobs, body, w)
		switch {
		case w.failed != nil:
			return w.failed // the disk failed, not the source, so a retry doesn't help
		case *w.n > before, goesOn: // a response may end after any blob, so this is no failure
			tries, pause = 0, 0
			continue
		}
		if tries++; tries == barren {
			return contract.NewProblem(contract.ReasonPayloadIncomplete, "%d attempts in a row brought nothing: %v",
				barren, err)
		}
		pause = loop.Grow(pause, 2, firstRetry, longestRetry)
		wait := pause
		if busy, ok := errors.AsType[*Busy](err); ok {
			wait, tries = busy.After, 0
		}
		if !loop.Wait(ctx, f.Clock, nil, wait) {
			return ctx.Err()
		}
	}
	return nil
}

// attempt reads the rest of the first blob from *body. If *body is nil, it requests a new response from the source.
func (f *Fetcher) attempt(ctx context.Context, blobs []contract.Blob, body *io.ReadCloser, w *counted) (err error) {
	if *body == nil {
		digests := make([]string, 0, len(blobs))
		for _, b := range blobs {
			digests = append(digests, b.Digest)
		}
		if *body, err = f.Source.Open(ctx, digests, *w.n); err != nil {
			return err
		}
	}
	if _, err = io.CopyN(w, *body, blobs[0].Size-*w.n); err != nil {
		err = errors.Join(err, closed(body))
	}
	return err
}

// `counted` counts the written bytes, and stores the error of a failed write.
type counted struct {
	to     io.Writer
	n      *int64
	failed error
}

func (c *counted) Write(piece []byte) (int, error) {
	n, err := c.to.Write(piece)
	*c.n += int64(n)
	if err != nil {
		c.failed = err
	}
	return n, err
}
