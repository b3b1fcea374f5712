package sim

import (
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// splitPath gives the drive letter of a path and the names in it, none for the root. It refuses
// exactly what the daemon's own check refuses: real Windows drops trailing dots and spaces and
// resolves . and .. by itself, so that what comes out is not what was asked for.
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

// fold maps a name to what Windows compares: NTFS compares upper case, character by character.
func fold(name string) string { return strings.ToUpper(name) }

// baseName is what follows the last backslash.
func baseName(path string) string { return path[strings.LastIndexByte(path, '\\')+1:] }

// dirName is what precedes the last backslash.
func dirName(path string) string { return path[:max(strings.LastIndexByte(path, '\\'), 0)] }
