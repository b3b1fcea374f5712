package winos

import (
	"fmt"

	"golang.org/x/sys/windows"
)

// function finds a function that x/sys doesn't declare in a DLL of Windows' own directory. Where it
// is absent the error wraps ErrUnsupported. Looking it up anew each time costs microseconds: the
// DLL stays loaded.
func function(dll, name string) (*windows.LazyProc, error) {
	found := windows.NewLazySystemDLL(dll).NewProc(name)
	if err := found.Find(); err != nil {
		return nil, fmt.Errorf("loading %s of %s: %w: %w", name, dll, ErrUnsupported, err)
	}
	return found, nil
}
