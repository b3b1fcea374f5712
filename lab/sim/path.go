package sim

import (
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// splitPath returns the drive letter and the names of a path. The root has no names. It refuses the same paths as the
// check of the daemon: real Windows drops trailing dots and spaces and resolves . and .., so that the resulting path
// differs from the requested one.
func splitPath(path string) (drive byte, names []string, err error) {
	if err := winos.CheckPath(path); err != nil {
		return 0, nil, err
	}
	drive = path[0] &^ 0x20
	if len(path) == len(`C:\`) {
		return drive, nil, nil
	}
	return drive, strings.Split(path[len(`C:\`):], `\`), nil
}

// fold converts a name to the form that NTFS compares: upper case, character by character.
func fold(name string) string { return strings.ToUpper(name) }

// baseName returns the part after the last backslash.
func baseName(path string) string { return path[strings.LastIndexByte(path, '\\')+1:] }

// dirName returns the part before the last backslash.
func dirName(path string) string { return path[:max(strings.LastIndexByte(path, '\\'), 0)] }
