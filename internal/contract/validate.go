package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of Windows.
const (
	maxServiceName = 80    // well below the service manager's 256
	maxCommand     = 32767 // characters of CreateProcess
)

// protectedVariables are environment variables of Windows itself: to set or remove them breaks the
// host, so no manifest may.
func protectedVariables() []string {
	return []string{"path", "pathext", "comspec", "systemroot", "windir", "systemdrive", "temp", "tmp", "os",
		"psmodulepath", "processor_architecture", "number_of_processors", "username"}
}

// Validate checks every rule that the format can't express, and names all violations in one
// *Problem with ReasonManifestInvalid.
func (m Manifest) Validate() error {
	var all []error
	complain := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }

	services := make(map[string]Service, len(m.Services))
	folded := make(map[string]string, len(m.Services))
	for _, s := range m.Services {
		if other, ok := folded[strings.ToLower(s.Name)]; ok {
			complain("service %q: same name as %q", s.Name, other)
		}
		folded[strings.ToLower(s.Name)], services[s.Name] = s.Name, s
	}
	for _, s := range m.Services {
		for _, err := range serviceViolations(s, services) {
			complain("service %q: %w", s.Name, err)
		}
	}
	all = append(all, priorityViolations(m.Services)...)
	if cycle := dependencyCycle(m.Services); cycle != nil {
		complain("services depend on each other in a circle: %s", strings.Join(cycle, " → "))
	}
	all = append(all, filesViolations(m.Files, services)...)
	all = append(all, environmentViolations(m)...)
	if m.PodNetwork != "" && !legalServiceName(m.PodNetwork) {
		complain("podNetwork %q is no name of a network", m.PodNetwork)
	}
	all = append(all, digestViolations(m)...)
	all = append(all, logViolations(m)...)
	if err := errors.Join(all...); err != nil {
		return NewProblem(ReasonManifestInvalid, "%s", oneLine(err))
	}
	return nil
}

func requiredViolations(s Service) []error {
	if s.RequiresFile == "" {
		return nil
	}
	if err := CheckPath(s.RequiresFile); err != nil {
		return []error{fmt.Errorf("the file that it requires: %w", err)}
	}
	return nil
}

func serviceViolations(s Service, services map[string]Service) (all []error) {
	complain := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if !legalServiceName(s.Name) {
		complain("a name has letters, digits, '.', '_' and '-' only, at most %d", maxServiceName)
	}
	if isDaemons(s.Name) {
		complain("the daemon's own services are not part of a manifest")
	}
	if err := checkCommand(s.Command); err != nil {
		complain("%w", err)
	}
	if len(s.PreScripts) > 0 {
		complain("powershellPreScripts are not run by this daemon")
	}
	all = append(all, requiredViolations(s)...)
	all = append(all, variableViolations(s.NodeVariables, s.HostVariables)...)
	if s.Bootstrap && len(s.NodeVariables) > 0 {
		complain("a bootstrap service starts before there is a Node, so it can't use node variables")
	}
	for _, v := range s.HostVariables {
		if s.Bootstrap && v.Fact.Network() {
			complain("a bootstrap service starts before there is a network, so it can't use the fact %s", v.Fact)
		}
	}
	seen := map[string]bool{}
	for _, d := range s.Dependencies {
		dependency, ok := services[d]
		switch {
		case d == s.Name:
			complain("it depends on itself")
		case !ok:
			complain("dependency %q is not in the manifest", d)
		case seen[d]:
			complain("dependency %q is listed twice", d)
		case s.Bootstrap && !dependency.Bootstrap:
			complain("a bootstrap service can't depend on %q, which is none", d)
		}
		seen[d] = true
	}
	return all
}

// isDaemons says whether a service is the daemon, or stands in for it; Windows does not tell upper
// from lower case.
func isDaemons(name string) bool {
	return strings.EqualFold(name, ServiceDaemon) || strings.EqualFold(name, ServiceWatchdog)
}

func legalServiceName(name string) bool {
	if name == "" || len(name) > maxServiceName {
		return false
	}
	for _, r := range name {
		if r > unicode.MaxASCII || (!unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)) {
			return false
		}
	}
	return true
}

func checkCommand(command string) error {
	if !utf8.ValidString(command) || strings.ContainsFunc(command, unicode.IsControl) {
		return errors.New("the command has control characters or is not UTF-8")
	}
	if len(command) > maxCommand {
		return fmt.Errorf("the command is longer than %d characters", maxCommand)
	}
	exe := Executable(command)
	if err := CheckPath(exe); err != nil {
		return fmt.Errorf("program %q of the command: %w", exe, err)
	}
	if !Within(DirK, exe) || !strings.HasSuffix(strings.ToLower(exe), ".exe") {
		return fmt.Errorf("program %q of the command is not an .exe in %s", exe, DirK)
	}
	return nil
}

// Executable is the path of the program that a command line starts: its first word, without quotes.
func Executable(command string) string {
	command = strings.TrimLeft(command, " ")
	if rest, quoted := strings.CutPrefix(command, `"`); quoted {
		exe, _, _ := strings.Cut(rest, `"`)
		return exe
	}
	exe, _, _ := strings.Cut(command, " ")
	return exe
}

// Programs are the exes that belong to the service with this command line alone: what
// kube-log-runner or the service wrapper runs in place of itself, which others run, too.
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

func variableViolations(node []NodeVariable, host []HostVariable) (all []error) {
	seen := map[string]bool{}
	name := func(n string) {
		if n == "" || strings.ContainsFunc(n, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			all = append(all, fmt.Errorf("variable %q: a name is not empty and has no space", n))
		}
		if seen[n] {
			all = append(all, fmt.Errorf("variable %q is listed twice", n))
		}
		seen[n] = true
	}
	for _, v := range node {
		name(v.Name)
		if !strings.HasPrefix(v.JSONPath, "{.") || !strings.HasSuffix(v.JSONPath, "}") {
			all = append(all, fmt.Errorf("variable %q: %q is not a JSONPath such as {.metadata.name}", v.Name,
				v.JSONPath))
		}
	}
	for _, v := range host {
		name(v.Name)
		if !v.Fact.Known() {
			all = append(all, fmt.Errorf("variable %q: fact %q is not known", v.Name, v.Fact))
		}
	}
	return all
}

// priorityViolations holds that every bootstrap priority is lower than every other.
func priorityViolations(services []Service) (all []error) {
	for _, b := range services {
		for _, s := range services {
			if b.Bootstrap && !s.Bootstrap && b.Priority >= s.Priority {
				all = append(all, fmt.Errorf("bootstrap service %q has priority %d, which is not lower than %d of %q",
					b.Name, b.Priority, s.Priority, s.Name))
			}
		}
	}
	return all
}

func filesViolations(files []File, services map[string]Service) (all []error) {
	paths := make(map[string]bool, len(files))
	for _, f := range files {
		key := strings.ToLower(f.Path)
		if paths[key] {
			all = append(all, fmt.Errorf("file %q is listed twice", f.Path))
		}
		paths[key] = true
		for _, err := range fileViolations(f, services) {
			all = append(all, fmt.Errorf("file %q: %w", f.Path, err))
		}
	}
	for key := range paths {
		for other := range paths {
			if key != other && Within(key, other) {
				all = append(all, fmt.Errorf("file %q lies in %q, which is a file", other, key))
			}
		}
	}
	slices.SortFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return all
}

func fileViolations(f File, services map[string]Service) (all []error) {
	complain := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if err := CheckPath(f.Path); err != nil {
		complain("%w", err)
	}
	if !managedPath(f.Path) {
		complain("a manifest's files lie under %s", strings.Join(managedRoots(), ", "))
	}
	if ownPath(f.Path) && !daemonProgram(f) {
		complain("this file or folder is the daemon's own")
	}
	all = append(all, contentViolations(f)...)
	all = append(all, variableViolations(f.NodeVariables, f.HostVariables)...)
	for _, name := range f.Services {
		service, ok := services[name]
		if !ok {
			complain("service %q, which would be restarted, is not in the manifest", name)
		}
		// A service waits for the late files that name it, and a bootstrap service can't wait.
		if ok && service.Bootstrap && f.Late() {
			complain("bootstrap service %q can't need a file that is written late", name)
		}
	}
	return all
}

func contentViolations(f File) (all []error) {
	complain := func(text string) { all = append(all, errors.New(text)) }
	switch {
	case (f.Digest == "") == (f.Content == ""):
		complain("exactly one of sha256 and content must be given")
	case f.Digest != "":
		if !IsDigest(f.Digest) {
			complain("sha256 is not 64 lower-case hex digits")
		}
		if f.Size <= 0 {
			complain("size of a payload file is missing")
		}
		if len(f.NodeVariables)+len(f.HostVariables) > 0 {
			complain("a payload file can't have variables")
		}
	default:
		if f.Size != 0 {
			complain("size is for payload files only")
		}
		if !utf8.ValidString(f.Content) || strings.ContainsRune(f.Content, 0) {
			complain("content is not text")
		}
	}
	return all
}

// IsDigest says whether text is a SHA-256 as we write it.
func IsDigest(text string) bool {
	return len(text) == hex.EncodedLen(sha256.Size) && strings.Trim(text, "0123456789abcdef") == ""
}

// CheckDigest keeps anything else than a digest from becoming a path.
func CheckDigest(digest string) error {
	if !IsDigest(digest) {
		return fmt.Errorf("%.70q is not a digest", digest)
	}
	return nil
}

func environmentViolations(m Manifest) []error {
	return append(variablesViolations(m.EnvironmentVars),
		nameViolations("watched environment variable", m.WatchedEnvironmentVars)...)
}

// variablesViolations checks variables that are to be set, by names and values. It never says a
// value, which may be a secret.
func variablesViolations(variables map[string]string) []error {
	names := slices.Sorted(maps.Keys(variables))
	all := nameViolations("environment variable", names)
	for _, n := range names {
		value := variables[n]
		if value == "" || strings.ContainsFunc(value, unicode.IsControl) || !utf8.ValidString(value) {
			all = append(all, fmt.Errorf("environment variable %q: its value is empty or has control characters", n))
		}
	}
	return all
}

func nameViolations(kind string, names []string) (all []error) {
	seen := map[string]bool{}
	for _, n := range names {
		key := strings.ToLower(n)
		if n == "" || strings.ContainsRune(n, '=') || strings.ContainsFunc(n, unicode.IsControl) ||
			!utf8.ValidString(n) {
			all = append(all, fmt.Errorf("%s %q: not a variable's name", kind, n))
		}
		if slices.Contains(protectedVariables(), key) {
			all = append(all, fmt.Errorf("%s %q belongs to Windows", kind, n))
		}
		if seen[key] {
			all = append(all, fmt.Errorf("%s %q is listed twice", kind, n))
		}
		seen[key] = true
	}
	return all
}

func digestViolations(m Manifest) (all []error) {
	for key, text := range map[string]string{KeyConfidential: m.Confidential,
		KeyConfidentialEnvironment: m.ConfidentialEnvironment} {
		if text != "" && !IsDigest(text) {
			all = append(all, fmt.Errorf("%s is not 64 lower-case hex digits", key))
		}
	}
	if m.ConfidentialEnvironment != "" && m.Confidential == "" {
		all = append(all, fmt.Errorf("%s is there without %s", KeyConfidentialEnvironment, KeyConfidential))
	}
	slices.SortFunc(all, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return all
}

func logViolations(m Manifest) (all []error) {
	seen := map[string]bool{}
	for _, s := range m.Services {
		if s.Log == nil {
			continue
		}
		if err := CheckPath(s.Log.Path); err != nil || !Within(DirLog, s.Log.Path) {
			all = append(all, fmt.Errorf("service %q: its log is not a file in %s", s.Name, DirLog))
		}
		if key := strings.ToLower(s.Log.Path); seen[key] {
			all = append(all, fmt.Errorf("service %q: its log is that of another service", s.Name))
		} else {
			seen[key] = true
		}
		all = append(all, limitViolations(fmt.Sprintf("service %q", s.Name), *s.Log)...)
	}
	if m.Daemon != nil && m.Daemon.Log != nil {
		all = append(all, limitViolations("the daemon", *m.Daemon.Log)...)
	}
	return all
}

func limitViolations(whose string, l Log) (all []error) {
	if l.MaxSize < 0 || l.MaxAgeSeconds < 0 || l.MaxFiles < 0 {
		all = append(all, fmt.Errorf("%s: a limit of its log is negative", whose))
	}
	return all
}

// Known says whether the daemon can find this fact.
func (f Fact) Known() bool {
	switch f {
	case FactHostname, FactFullHostname, FactNodeIP, FactSourceVIP, FactHNSSubnet, FactManagementIP, FactAWSHostname,
		FactGCPHostname, FactCloudNodeKubeconfig, FactFlannelKubeconfig:
		return true
	}
	return false
}

// Network says whether this fact is known only once the pods' network is there.
func (f Fact) Network() bool {
	return f == FactSourceVIP || f == FactHNSSubnet || f == FactManagementIP
}

// Late says whether this file is written after bootstrap, when the Node and its network are there.
func (f File) Late() bool {
	return len(f.NodeVariables) > 0 || slices.ContainsFunc(f.HostVariables,
		func(v HostVariable) bool { return v.Fact.Network() })
}
