package winos

import (
	"errors"
	"fmt"
	"syscall"
)

// fail adds the operation to an error of Windows. If `meaning` returns an error for the code of err, the result also
// wraps that error. If err is nil, fail returns nil.
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

// code returns the Windows error code in err, or 0.
func code(err error) uint32 {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return uint32(errno)
	}
	return 0
}
