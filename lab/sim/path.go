package sim

import (
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// splitPath returns the drive letter and the names in a path. The root has no names. splitPath refuses the same paths
// as the daemon, such as paths with trailing dots or spaces, or with the names . and .. in them. Windows would change
// such a path to a different path.
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

// fold converts a name to upper case, because NTFS ignores case when it compares names.
func fold(name string) string { return strings.ToUpper(name) }

// baseName returns the part after the last backslash.
func baseName(path string) string { return path[strings.LastIndexByte(path, '\\')+1:] }

// dirName returns the part before the last backslash.
func dirName(path string) string { return path[:max(strings.LastIndexByte(path, '\\'), 0)] }
