package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPath is what Windows programs take without the long-path prefix.
const maxPath = 259

// maxName is the longest name on NTFS.
const maxName = 255

// reservedNames can't name a file on Windows, with or without an extension.
func reservedNames() []string {
	return []string{
		"con", "prn", "aux", "nul", "conin$", "conout$", "com0", "com1", "com2", "com3", "com4", "com5", "com6", "com7",
		"com8", "com9",
		"com¹", "com²", "com³", "lpt¹", "lpt²", "lpt³", // superscript digits count
		"lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9",
	}
}

// CheckPath says what is wrong with an absolute Windows path: it must start with a drive, have
// backslashes only, no . or .. and no name that Windows refuses or silently changes. It never asks
// a file system: Wine is more lenient than Windows.
func CheckPath(path string) error {
	if !utf8.ValidString(path) {
		return errors.New("a path is UTF-8")
	}
	if len(path) > maxPath {
		return fmt.Errorf("a path has at most %d characters", maxPath)
	}
	if len(path) < 4 || !isDriveLetter(path[0]) || path[1:3] != `:\` {
		return errors.New(`a path starts with a drive and a backslash, such as C:\`)
	}
	for _, name := range strings.Split(path[3:], `\`) {
		if err := checkName(name); err != nil {
			return err
		}
	}
	return nil
}

func isDriveLetter(b byte) bool { return 'A' <= b&^0x20 && b&^0x20 <= 'Z' }

func checkName(name string) error {
	stem, _, _ := strings.Cut(strings.ToLower(name), ".")
	switch {
	case name == "":
		return errors.New("a path has no empty part")
	case len(name) > maxName:
		return fmt.Errorf("a name in a path has at most %d characters", maxName)
	case strings.ContainsAny(name, `<>:"/|?*`) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%q has a character that Windows does not allow", name)
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return fmt.Errorf("%q ends in a dot or space, which Windows cuts off", name)
	case slices.Contains(reservedNames(), strings.TrimRight(stem, " ")):
		return fmt.Errorf("%q is a device name of Windows", name)
	}
	return nil
}

// Within says whether path lies below dir, by Windows' case-insensitive rules. A folder is not
// within itself.
func Within(dir, path string) bool {
	return strings.HasPrefix(strings.ToLower(path), strings.ToLower(strings.TrimSuffix(dir, `\`)+`\`))
}

// managedRoots are the folders in which a manifest may place files.
func managedRoots() []string { return []string{DirK, `C:\var`, DirTemp} }

func managedPath(path string) bool {
	return slices.ContainsFunc(managedRoots(), func(root string) bool { return Within(root, path) })
}

// daemonProgram says whether a file is the daemon's program, as a blob: the one file of its own
// that a manifest lists, with nothing to restart, because the daemon sees to that itself.
func daemonProgram(f File) bool {
	return strings.EqualFold(f.Path, PathDaemon) && f.Digest != "" && len(f.Services) == 0
}

// ownPath says whether a path is one that the daemon or kubelet writes by itself, so no manifest
// may.
func ownPath(path string) bool {
	for _, own := range []string{PathState, PathDaemon, PathWatchdog, PathKubeconfig, PathBootstrapKubeconfig,
		PathDaemonKubeconfig} {
		if strings.EqualFold(own, path) {
			return true
		}
	}
	for _, dir := range []string{DirStore, DirSealed, DirDaemonCerts, DirRegistries, DirRegistryCAs, DirKubeletPKI} {
		if strings.EqualFold(dir, path) || Within(dir, path) {
			return true
		}
	}
	return false
}
