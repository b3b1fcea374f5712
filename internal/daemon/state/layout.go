package state

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Directories lists the directories that every host needs, including internal ones.
func Directories() []string {
	dirs := []string{
		contract.DirCNI, contract.DirCNIConfig, contract.DirContainerd, contract.DirRegistries, contract.DirManifests,
		contract.DirVolumePlugins, contract.DirTLS,
		contract.DirDaemonCerts, contract.DirStore, contract.DirMetrics,
		contract.DirLog, contract.DirTemp,
	}
	for _, service := range contract.LoggingServices() {
		dirs = append(dirs, Parent(contract.LogFile(service)))
	}
	// kubelet, the CNI plugins and containerd would create these directories themselves. We create them first, so that
	// cleanup knows whether they existed before.
	return append(dirs, contract.DirKubeletPKI, DirCNIState, contract.DirContainerdData)
}

// Private lists the paths that only administrators may access, whichever program wrote them: C:\k, our restricted
// directories, and our own files that are not part of a manifest. Some of these paths may not exist.
func Private(stateFile *File) []string {
	paths := []string{contract.DirK}
	for _, dir := range Directories() {
		if Access(dir) == winos.AccessAdministrators && stateFile.Directories.Has(dir) {
			paths = append(paths, dir)
		}
	}
	return append(paths, contract.PathState, contract.PathDaemon, contract.PathDaemonKubeconfig,
		contract.PathDaemonCertificate, contract.PathKubeconfig, contract.PathBootstrapKubeconfig)
}

// DirCNIState is where CNI plugins store the addresses that they have assigned to pods.
const DirCNIState = `C:\var\lib\cni`

// Access returns the access rights for a path that we write. Only Administrators and SYSTEM can access C:\k, kubelet's
// keys, containerd's images, and the state of the CNI plugins. Other paths inherit their rights, because log collectors
// in pods read the files below C:\var\log. kubelet sets no file rights on Windows, so its keys inherit the rights of
// their directory.
func Access(path string) winos.Access {
	for _, private := range []string{contract.DirK, contract.DirKubeletPKI, contract.DirContainerdData,
		DirCNIState} {
		if strings.EqualFold(path, private) || contract.Within(private, path) {
			return winos.AccessAdministrators
		}
	}
	return winos.AccessInherit
}

// Open creates C:\k if it is missing and opens the state file in it.
//
// If users other than administrators may write to C:\k, Open doesn't trust C:\k, because such a user could have created
// C:\k together with a state file. If such a directory is empty, Open deletes it and creates it again. If it isn't
// empty, or if another operator created it, Open returns a Problem. If C:\k is recognisably ours, but the state file is
// missing or damaged, Open starts a new state file.
func Open(files winos.Files) (*File, error) {
	state, err := look(files)
	if err != nil {
		return nil, err
	}
	switch state {
	case foreign:
		return nil, conflict(contract.DirK)
	case open:
		if err = files.Remove(contract.DirK); err != nil {
			return nil, fmt.Errorf("removing the empty directory %s, which others may write into: %w", contract.DirK,
				err)
		}
		fallthrough
	case absent:
		if err = files.MkdirAll(contract.DirK, winos.AccessAdministrators); err != nil {
			return nil, fmt.Errorf("making %s: %w", contract.DirK, err)
		}
	}
	stateFile, err := Read(files)
	if err != nil {
		return nil, err
	}
	if state == spare || stateFile.Exists() {
		return stateFile, nil
	}
	// These directories are ours: C:\k was empty, or we created the directories before the state file was lost.
	for _, dir := range Directories() {
		for _, d := range append(parents(dir), dir) {
			if d == contract.DirK || contract.Within(contract.DirK, d) {
				stateFile.Directories.Add(d)
			}
		}
	}
	return stateFile, stateFile.Save()
}

// Recognisable reports whether this host is ours: only administrators may access C:\k, and C:\k contains our store or
// our state file, even a damaged one. No other operator creates these. Recognisable changes nothing.
func Recognisable(files winos.Files) (bool, error) {
	state, err := look(files)
	return state == ours, err
}

// Touched reports whether this host is Recognisable, or has an empty C:\k that only administrators may access. A
// command that is killed when it starts or ends may leave such a directory.
func Touched(files winos.Files) (bool, error) {
	state, err := look(files)
	return state == ours || state == empty, err
}

// Conflict returns a problem if Open would refuse the existing C:\k. If C:\k isn't ours yet, Conflict also returns the
// problem of UntrustedOwner, if any. Conflict changes nothing.
func Conflict(files winos.Files, shared ...string) (*contract.Problem, error) {
	state, err := look(files)
	switch {
	case err != nil:
		return nil, err
	case state == foreign:
		return conflict(contract.DirK), nil
	case state == ours:
		return nil, nil // Ensure checks the rest with the state file
	}
	return UntrustedOwner(files, shared...)
}

// UntrustedOwner returns a problem if a user without administrator rights owns one of our directories outside of C:\k,
// or a directory above it. Such a user could replace a directory that SYSTEM's programs write to. UntrustedOwner also
// checks the directories in `shared` and the files in them: programs of SYSTEM execute these files, and Windows lets
// users create files even in directories that belong to others. Directories may be missing.
func UntrustedOwner(files winos.Files, shared ...string) (*contract.Problem, error) {
	for _, dir := range slices.Concat(Directories(), shared) {
		if !contract.Within(dirVar, dir) && dir != contract.DirContainerdData && !slices.Contains(shared, dir) {
			continue
		}
		problem, err := UntrustedAbove(files, dir)
		if problem == nil && err == nil {
			problem, err = usurped(files, dir)
		}
		if problem != nil || err != nil {
			return problem, err
		}
	}
	for _, dir := range shared {
		entries, err := files.List(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("listing %s: %w", dir, err)
		}
		for _, entry := range entries {
			if problem, err := usurped(files, dir+`\`+entry.Name); problem != nil || err != nil {
				return problem, err
			}
		}
	}
	return nil, nil
}

// UntrustedAbove returns a problem if a user without administrator rights owns a directory above a path.
func UntrustedAbove(files winos.Files, path string) (*contract.Problem, error) {
	for _, dir := range parents(path) {
		if problem, err := usurped(files, dir); problem != nil || err != nil {
			return problem, err
		}
	}
	return nil, nil
}

func usurped(files winos.Files, path string) (*contract.Problem, error) {
	info, err := files.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking at %s: %w", path, err)
	case !info.Foreign:
		return nil, nil
	}
	return contract.NewProblem(contract.ReasonConflictingSoftware, "%s does not belong to Administrators, or users "+
		"without administrator rights may replace it or its contents; use icacls to make Administrators its owner "+
		"and to let only them change it, or rename or remove it", path), nil
}

// dirVar contains our directories outside of C:\k, except containerd's data and C:\Temp. UntrustedOwner doesn't check
// C:\Temp, because all programs use it and none of our programs reads its content.
const dirVar = `C:\var`

// ClearKeys deletes the directory of kubelet's keys if we did not create it and users other than administrators may
// write to it. Another operator may have left such a directory. kubelet would use a private key in this directory, and
// anyone with a copy of this key could act as the node. The result `cleared` reports whether the directory was deleted.
// ClearKeys deletes links in the directory and doesn't follow them.
func ClearKeys(files winos.Files, stateFile *File) (cleared bool, err error) {
	info, err := files.Stat(contract.DirKubeletPKI)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking at %s: %w", contract.DirKubeletPKI, err)
	case stateFile.Directories.Has(contract.DirKubeletPKI), info.Dir && info.Access == winos.AccessAdministrators:
		return false, nil
	}
	problem, err := UntrustedAbove(files, contract.DirKubeletPKI)
	if problem != nil {
		return false, problem
	}
	if err == nil {
		err = files.RemoveAll(contract.DirKubeletPKI)
	}
	if err != nil {
		return false, fmt.Errorf("removing %s, which others may write into: %w", contract.DirKubeletPKI, err)
	}
	return true, nil
}

// Trusted reports whether only administrators could have written the content of C:\k. Trusted changes nothing.
func Trusted(files winos.Files) (bool, error) {
	state, err := look(files)
	return state != foreign, err
}

func conflict(dir string) *contract.Problem {
	return contract.NewProblem(contract.ReasonConflictingSoftware, "%s exists, is not empty, and was not made by this "+
		"operator for Administrators only; rename or remove it", dir)
}

type condition int

const (
	absent  condition = iota
	empty             // ours, after a crash before the first entry of the state file
	open              // empty, but users other than administrators may write into it
	ours              // only administrators have access, and it has a file that only we write
	spare             // only administrators have access, and it has no files of a node
	foreign           // users may write into it, or another operator created a node's directories
)

func look(files winos.Files) (condition, error) {
	info, err := files.Stat(contract.DirK)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	if err != nil {
		return absent, fmt.Errorf("looking at %s: %w", contract.DirK, err)
	}
	if !info.Dir {
		return foreign, nil
	}
	entries, err := files.List(contract.DirK)
	if err != nil {
		return absent, fmt.Errorf("listing %s: %w", contract.DirK, err)
	}
	var paths Names
	for _, e := range entries {
		paths = append(paths, contract.DirK+`\`+e.Name)
	}
	has := paths.Has
	restricted := info.Access == winos.AccessAdministrators
	switch {
	case len(entries) == 0 && !restricted:
		return open, nil
	case !restricted:
		return foreign, nil
	case has(contract.PathState), has(contract.DirStore):
		return ours, nil
	case len(entries) == 0, len(entries) == 1 && has(contract.PathState+".tmp"):
		return empty, nil // an incomplete first state file counts as none
	case slices.ContainsFunc(Directories(), has):
		return foreign, nil
	}
	return spare, nil
}

// Ensure creates directories and their parents. It records all missing directories before it creates any. If a new
// directory must be private, but another program has created it first with other rights, Ensure returns an error.
func Ensure(files winos.Files, stateFile *File, dirs ...string) error {
	var missing []string
	for _, dir := range dirs {
		for _, d := range append(parents(dir), dir) {
			there, err := winos.Exists(files, d)
			if err != nil {
				return fmt.Errorf("looking at %s: %w", d, err)
			}
			if !there && !slices.Contains(missing, d) {
				stateFile.Directories.Add(d)
				missing = append(missing, d)
			}
		}
	}
	if err := stateFile.Save(); err != nil {
		return err
	}
	for _, d := range missing {
		if err := makeOne(files, d); err != nil {
			return fmt.Errorf("making %s: %w", d, err)
		}
	}
	return nil
}

// makeOne creates a directory. Below C:\ on some volumes, a directory that inherits its rights gives access to users.
// In this case, makeOne deletes the directory and creates it again with its own rights. It can't change the rights by
// path, because a user may have replaced the directory by then.
func makeOne(files winos.Files, dir string) error {
	access := Access(dir)
	if err := files.MkdirAll(dir, access); err != nil {
		return err
	}
	info, err := files.Stat(dir)
	switch {
	case err != nil:
		return err
	case access == winos.AccessAdministrators && info.Access != access:
		return conflict(dir)
	case access == winos.AccessInherit && info.Foreign:
		return errors.Join(files.Remove(dir), files.MkdirAll(dir, winos.AccessUsers))
	}
	return nil
}

// parents lists the directories above path, the topmost first, without the drive.
func parents(path string) (all []string) {
	for i, c := range path {
		if c == '\\' && i > 2 {
			all = append(all, path[:i])
		}
	}
	return all
}

// Parent returns the directory of path. If path is only a name, it returns an empty string.
func Parent(path string) string { return path[:max(0, strings.LastIndexByte(path, '\\'))] }
