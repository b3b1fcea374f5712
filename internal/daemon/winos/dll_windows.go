package winos

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// function finds a Windows function that x/sys doesn't declare. If the DLL or the Windows function is missing, the
// error wraps ErrUnsupported. A lookup takes microseconds, because the DLL stays loaded.
func function(dll, name string) (*windows.LazyProc, error) {
	found := windows.NewLazySystemDLL(dll).NewProc(name)
	if err := found.Find(); err != nil {
		return nil, fmt.Errorf("loading %s of %s: %w: %w", name, dll, ErrUnsupported, err)
	}
	return found, nil
}
