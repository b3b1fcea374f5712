package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// legalName matches names of Windows services and HNS networks in a manifest. Windows allows more names.
var legalName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,80}$`)

// protectedVariables returns the names of Windows' own environment variables. Setting or removing them breaks the host.
func protectedVariables() []string {
	return []string{"path", "pathext", "comspec", "systemroot", "windir", "systemdrive", "temp", "tmp", "os",
		"psmodulepath", "processor_architecture", "number_of_processors", "username"}
}

// Validate returns a *Problem with ReasonManifestInvalid that lists everything that could harm a host: programs and
// files outside of the operator's directories, names that belong to the daemon or to Windows, and facts that this
// release can't find. It checks nothing else, because the revision's name proves that the operator wrote the manifest.
func (m Manifest) Validate() error {
	all := append(fileViolations(m.Files), environmentViolations(m.EnvironmentVars, m.WatchedEnvironmentVars)...)
	for _, s := range m.Services {
		if err := s.check(); err != nil {
			all = append(all, fmt.Errorf("service %q: %w", s.Name, err))
		}
	}
	if m.PodNetwork != "" && !legalName.MatchString(m.PodNetwork) {
		all = append(all, fmt.Errorf("podNetwork %q is not the name of a network", m.PodNetwork))
	}
	return manifestProblem(all)
}

// Validate is like Manifest.Validate. Its error never shows a value.
func (c Confidential) Validate() error {
	all := append(fileViolations(c.Files), environmentViolations(c.Environment, nil)...)
	if len(c.Salt) != SaltSize {
		all = append(all, fmt.Errorf("the salt does not have %d bytes", SaltSize))
	}
	return manifestProblem(all)
}

func manifestProblem(all []error) error {
	if err := errors.Join(all...); err != nil {
		return NewProblem(ReasonManifestInvalid, "%s", oneLine(err))
	}
	return nil
}

func (s Service) check() error {
	exe := Executable(s.Command)
	switch err := CheckPath(exe); {
	case !legalName.MatchString(s.Name):
		return errors.New("a name has letters, digits, '.', '_' and '-' only, at most 80")
	case strings.EqualFold(s.Name, ServiceDaemon):
		return errors.New("the daemon's own service is not part of a manifest")
	case err != nil:
		return fmt.Errorf("program %q of the command: %w", exe, err)
	case !Within(DirK, exe) || !strings.HasSuffix(strings.ToLower(exe), ".exe"):
		return fmt.Errorf("program %q of the command is not an .exe in %s", exe, DirK)
	case s.Log != nil && (CheckPath(s.Log.Path) != nil || !Within(DirLog, s.Log.Path)):
		return fmt.Errorf("its log is not a file in %s", DirLog)
	}
	return checkFacts(s.HostVariables)
}

func checkFacts(variables []HostVariable) error {
	for _, v := range variables {
		if !v.Fact.Known() {
			return fmt.Errorf("variable %q: fact %q is not known", v.Name, v.Fact)
		}
	}
	return nil
}

// Executable returns the path of the program that a command line starts: the first word, without quotes.
func Executable(command string) string {
	command = strings.TrimLeft(command, " ")
	if rest, quoted := strings.CutPrefix(command, `"`); quoted {
		exe, _, _ := strings.Cut(rest, `"`)
		return exe
	}
	exe, _, _ := strings.Cut(command, " ")
	return exe
}

// Programs lists the programs of a command line that no other service runs. Other services also run kube-log-runner and
// the service wrapper, so Programs replaces these two by the program that they start.
func Programs(command string) []string {
	exe := Executable(command)
	if !strings.EqualFold(exe, PathKubeLogRunner) && !strings.EqualFold(exe, PathServiceWrapper) {
		return []string{exe}
	}
	for _, word := range strings.Fields(command)[1:] {
		if Within(DirK, word) && strings.HasSuffix(strings.ToLower(word), ".exe") {
			return []string{word}
		}
	}
	return nil
}

func fileViolations(files []File) (all []error) {
	paths := make(map[string]bool, len(files))
	for _, f := range files {
		key := strings.ToLower(f.Path)
		err := f.check()
		if err == nil && paths[key] {
			err = errors.New("it is listed twice")
		}
		if paths[key] = true; err != nil {
			all = append(all, fmt.Errorf("file %q: %w", f.Path, err))
		}
	}
	return all
}

func (f File) check() error {
	switch err := CheckPath(f.Path); {
	case err != nil:
		return err
	case !managedPath(f.Path):
		return fmt.Errorf("a manifest's files lie under %s", strings.Join(managedRoots(), ", "))
	case ownPath(f.Path) && !daemonProgram(f):
		return errors.New("this file or folder is the daemon's own")
	case f.Digest != "" && !IsDigest(f.Digest):
		return errors.New("sha256 is not 64 lower-case hex digits")
	}
	return checkFacts(f.HostVariables)
}

// IsDigest reports whether text is a SHA-256 in lower-case hex.
func IsDigest(text string) bool {
	return len(text) == hex.EncodedLen(sha256.Size) && strings.Trim(text, "0123456789abcdef") == ""
}

// CheckDigest returns an error if a text is not a digest and therefore must not become part of a path.
func CheckDigest(digest string) error {
	if !IsDigest(digest) {
		return fmt.Errorf("%.70q is not a digest", digest)
	}
	return nil
}

// environmentViolations checks the variables to set and the names of the variables to remove. Its errors never show a
// value, because a value may be secret.
func environmentViolations(set map[string]string, remove []string) (all []error) {
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(set)), remove) {
		switch value := set[name]; {
		case name == "" || strings.ContainsRune(name, '=') || !isText(name):
			all = append(all, fmt.Errorf("environment variable %q: not a variable's name", name))
		case slices.Contains(protectedVariables(), strings.ToLower(name)):
			all = append(all, fmt.Errorf("environment variable %q belongs to Windows", name))
		case !isText(value):
			all = append(all, fmt.Errorf("environment variable %q: its value has control characters", name))
		}
	}
	return all
}

func isText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// Known reports whether this release's daemon can find the fact.
func (f Fact) Known() bool {
	switch f {
	case FactHostname, FactFullHostname, FactNodeIP, FactSourceVIP, FactHNSSubnet, FactManagementIP, FactAWSHostname,
		FactGCPHostname, FactCloudNodeKubeconfig, FactFlannelKubeconfig:
		return true
	}
	return false
}

// Network reports whether the fact is known only after the pods' network was created.
func (f Fact) Network() bool {
	return f == FactSourceVIP || f == FactHNSSubnet || f == FactManagementIP
}

// Late reports whether the file is written after bootstrap, when the Node and its network exist.
func (f File) Late() bool {
	return len(f.NodeVariables) > 0 || slices.ContainsFunc(f.HostVariables,
		func(v HostVariable) bool { return v.Fact.Network() })
}
