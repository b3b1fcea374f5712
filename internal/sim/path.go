package sim

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// Limits of NTFS and of Windows' wide-character functions, in UTF-16 units.
const (
	maxPathLength = 32767
	maxNameLength = 255
)

// splitPath checks an absolute path and gives its drive letter and the names in it; none for the root. Errors are winos.ErrInvalidName.
// Windows drops trailing dots and spaces and resolves . and .. by itself; here they are refused, because what comes out is not what was
// asked for.
func splitPath(path string) (drive byte, names []string, err error) {
	if !utf8.ValidString(path) {
		return 0, nil, invalid("it is not UTF-8")
	}
	if utf16Length(path) > maxPathLength {
		return 0, nil, invalid("it is longer than %d", maxPathLength)
	}
	if len(path) < 3 || !isLetter(path[0]) || path[1:3] != `:\` {
		return 0, nil, invalid("it does not start with a drive and a backslash")
	}
	drive = path[0] &^ 0x20
	if len(path) == 3 {
		return drive, nil, nil
	}
	names = strings.Split(path[3:], `\`)
	for _, name := range names {
		if err := checkName(name); err != nil {
			return 0, nil, err
		}
	}
	return drive, names, nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return invalid("it has an empty name")
	case utf16Length(name) > maxNameLength:
		return invalid("a name in it is longer than %d", maxNameLength)
	case strings.ContainsAny(name, `/:*?"<>|`):
		return invalid("%q has a character that Windows reserves", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }):
		return invalid("%q has a control character", name)
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return invalid("%q ends in a dot or a space", name)
	case isDevice(name):
		return invalid("%q is a device", name)
	}
	return nil
}

// isDevice says whether a name is a DOS device, with any extension: CON, con.txt, "NUL .log", COM1, LPT².
func isDevice(name string) bool {
	stem, _, _ := strings.Cut(name, ".")
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	if slices.Contains([]string{"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"}, stem) {
		return true
	}
	digit, found := strings.CutPrefix(stem, "COM")
	if !found {
		digit, found = strings.CutPrefix(stem, "LPT")
	}
	return found && utf8.RuneCountInString(digit) == 1 && strings.ContainsAny(digit, "0123456789¹²³")
}

// fold maps a name to what Windows compares: NTFS compares upper case, character by character.
func fold(name string) string { return strings.ToUpper(name) }

func isLetter(b byte) bool { return 'A' <= b&^0x20 && b&^0x20 <= 'Z' }

func utf16Length(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{winos.ErrInvalidName}, args...)...)
}

// baseName is what follows the last backslash.
func baseName(path string) string { return path[strings.LastIndexByte(path, '\\')+1:] }

// dirName is what precedes the last backslash.
func dirName(path string) string { return path[:max(strings.LastIndexByte(path, '\\'), 0)] }
