package winos

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// fail says what was being done when Windows answered err, with the error that callers test for
// when there is one. nil stays nil.
func fail(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	doing := fmt.Sprintf(format, args...)
	if known := meaning(code(err)); known != nil && !errors.Is(err, known) {
		return fmt.Errorf("%s: %w: %w", doing, known, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// interruptible runs a call into Windows that knows nothing of contexts. When ctx ends first, the
// call goes on by itself and its result is lost; it must own what it uses.
func interruptible[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	done := make(chan answer, 1)
	go func() {
		value, err := call()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// code is the error code of Windows in err, 0 if it has none.
func code(err error) uint32 {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return uint32(errno)
	}
	return 0
}
