package winos

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of NTFS and of the Windows API, in UTF-16 units.
const (
	longestComponent = 255
	longestPath      = 32767
)

// CheckPath returns an error if path is not an absolute path that every Windows Server accepts. A path has a drive
// letter, backslashes, and names. A name has no reserved characters, is not the name of a device, and doesn't end with
// a dot or a space. Only the root of a drive, such as C:\, ends with a backslash. The error wraps ErrInvalidName.
//
// The check is needed before each call into Windows, for two reasons. Windows itself skips many checks for a path in
// verbatim form (\\?\). And Wine, which runs some of the tests, accepts names that Windows refuses. The rules:
// https://learn.microsoft.com/en-us/windows/win32/fileio/naming-a-file.
func CheckPath(path string) error {
	wrong := func(why string) error { return fmt.Errorf("path %q: %w: %s", path, ErrInvalidName, why) }
	if !utf8.ValidString(path) {
		return wrong("not UTF-8")
	}
	if len(path) < 3 || !isLetter(path[0]) || path[1] != ':' || path[2] != '\\' {
		return wrong(`does not start with a drive, such as C:\`)
	}
	if units(path) > longestPath {
		return wrong("too long")
	}
	rest := path[3:]
	if rest == "" {
		return nil
	}
	for name := range strings.SplitSeq(rest, `\`) {
		if why := wrongName(name); why != "" {
			return wrong(why)
		}
	}
	return nil
}

// wrongName returns what is wrong with one component of a path, or an empty string.
func wrongName(name string) string {
	switch {
	case name == "":
		return "a component is empty"
	case units(name) > longestComponent:
		return "a component is too long"
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return "a component ends with a dot or a space"
	}
	for _, r := range name {
		if r < ' ' || strings.ContainsRune(`<>:"/|?*`, r) {
			return fmt.Sprintf("the character %q is reserved", r)
		}
	}
	if isDevice(name) {
		return fmt.Sprintf("%q is the name of a device", name)
	}
	return ""
}

// isDevice reports whether a name is the name of a device in every directory, with or without an extension.
func isDevice(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	digit, ok := strings.CutPrefix(base, "COM")
	if !ok {
		digit, ok = strings.CutPrefix(base, "LPT")
	}
	// Superscript digits also count as digits. Windows' documentation no longer lists 0, but older versions reserved
	// it.
	return ok && utf8.RuneCountInString(digit) == 1 && strings.Contains("0123456789¹²³", digit)
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// units returns the length of s in UTF-16 units. Windows measures names in these units.
func units(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// parents lists the directories above a path that CheckPath accepts, the drive's root first, and then the path itself.
func parents(path string) []string {
	all := []string{path[:3]}
	for i := 3; i < len(path); i++ {
		if path[i] == '\\' {
			all = append(all, path[:i])
		}
	}
	if len(path) > 3 {
		all = append(all, path)
	}
	return all
}
