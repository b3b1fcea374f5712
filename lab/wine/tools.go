//go:build linux

package wine

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// tools are the programs on this machine that hosts need.
type tools struct {
	// wine starts a Windows program. server is wineserver.
	wine, server string
	// compiler compiles C to DLLs for Windows.
	compiler string
}

// wanted returns each required program with its Debian package.
func wanted() []struct{ program, debian string } {
	return []struct{ program, debian string }{
		{"wine", "wine wine64"}, {"wineserver", "wine wine64"}, {"x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"},
	}
}

// MissingError reports that this machine lacks programs for Wine hosts.
type MissingError struct {
	// Programs are the names of the missing programs. Packages are their Debian packages.
	Programs, Packages []string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("this machine lacks %s; Debian has it in: %s", strings.Join(e.Programs, ", "),
		strings.Join(slices.Compact(slices.Clone(e.Packages)), " "))
}

// Check returns nil if Wine hosts can be created, and otherwise a *MissingError.
func Check() error {
	_, err := findTools()
	return err
}

func findTools() (tools, error) {
	missing := &MissingError{}
	var paths []string
	for _, w := range wanted() {
		path, err := exec.LookPath(w.program)
		if err != nil {
			missing.Programs, missing.Packages = append(missing.Programs, w.program), append(missing.Packages, w.debian)
		}
		paths = append(paths, path)
	}
	if len(missing.Programs) > 0 {
		return tools{}, missing
	}
	return tools{wine: paths[0], server: paths[1], compiler: paths[2]}, nil
}
