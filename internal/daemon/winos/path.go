package winos

import (
	"fmt"

	"github.com/windows-nodes/wmco/internal/contract"
)

// CheckPath is like contract.CheckPath, but its error wraps ErrInvalidName. Check a path before each call into Windows,
// because Windows itself skips many checks for a path in verbatim form (\\?\).
func CheckPath(path string) error {
	if err := contract.CheckPath(path); err != nil {
		return fmt.Errorf("path %q: %w: %w", path, ErrInvalidName, err)
	}
	return nil
}
