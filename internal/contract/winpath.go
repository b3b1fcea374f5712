package contract

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxComponent is NTFS's limit for one name, in UTF-16 units.
const maxComponent = 255

// deviceName matches names of devices, which Windows refuses for files in every directory, even with an extension.
// Superscript digits count as digits. The digit 0 is included, because Windows' documentation used to list it.
var deviceName = regexp.MustCompile(`^(?i:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9¹²³]) *(?:\.|$)`)

// CheckPath returns an error if path is not an absolute path that every Windows Server accepts. A path has a drive
// letter, backslashes, and names that Windows neither refuses nor silently changes. Only the root of a drive, such as
// C:\, ends with a backslash. The rules: https://learn.microsoft.com/en-us/windows/win32/fileio/naming-a-file.
func CheckPath(path string) error {
	switch {
	case !utf8.ValidString(path):
		return errors.New("a path is UTF-8")
	case len(path) < 3 || path[0]&^0x20 < 'A' || path[0]&^0x20 > 'Z' || path[1:3] != `:\`:
		return errors.New(`a path starts with a drive and a backslash, such as C:\`)
	case len(path) == 3:
		return nil
	}
	for name := range strings.SplitSeq(path[3:], `\`) {
		switch {
		case name == "":
			return errors.New("a path has no empty part")
		case len(utf16.Encode([]rune(name))) > maxComponent:
			return fmt.Errorf("a name in a path has at most %d characters", maxComponent)
		case strings.ContainsAny(name, `<>:"/|?*`) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }):
			return fmt.Errorf("%q has a character that Windows does not allow", name)
		case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
			return fmt.Errorf("%q ends in a dot or space, which Windows cuts off", name)
		case deviceName.MatchString(name):
			return fmt.Errorf("%q is a device name of Windows", name)
		}
	}
	return nil
}

// Within reports whether path lies below dir. Case doesn't matter. A folder is not within itself.
func Within(dir, path string) bool {
	return strings.HasPrefix(strings.ToLower(path), strings.ToLower(strings.TrimSuffix(dir, `\`)+`\`))
}

// managedRoots lists the folders that may contain a manifest's files.
func managedRoots() []string { return []string{DirK, `C:\var`, DirTemp} }

func managedPath(path string) bool {
	return slices.ContainsFunc(managedRoots(), func(root string) bool { return Within(root, path) })
}

// daemonProgram reports whether a file is the daemon's program and a blob. A manifest must not contain another file of
// the daemon. A change of the program must not restart a service, because the daemon replaces its program itself.
func daemonProgram(f File) bool {
	return strings.EqualFold(f.Path, PathDaemon) && f.Digest != "" && len(f.Services) == 0
}

// ownPath reports whether the daemon or kubelet itself writes the path. A manifest must not contain such a path.
func ownPath(path string) bool {
	return slices.ContainsFunc([]string{PathState, PathDaemon, PathKubeconfig, PathBootstrapKubeconfig,
		PathDaemonKubeconfig, DirStore, DirDaemonCerts, DirRegistries, DirKubeletPKI},
		func(own string) bool { return strings.EqualFold(own, path) || Within(own, path) })
}
