package payload

import (
	"context"
	"io"
)

// readerFunc is an io.Reader from a function.
type readerFunc func(p []byte) (int, error)

// Read is io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// until reads from r as long as ctx lasts.
func until(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return r.Read(p)
	})
}
