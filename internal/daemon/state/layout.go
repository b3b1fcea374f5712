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

// Directories are those that users know, and our own.
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
	// kubelet, the CNI plugins and containerd would make these; when we do, cleanup knows whether they
	// were there before.
	return append(dirs, contract.DirKubeletPKI, DirCNIState, contract.DirContainerdData)
}

// Private lists what must be for Administrators only, whoever wrote it: the directories of ours
// that hold keys or are read by services, and files that neither a manifest nor its confidential
// part lists. What does not exist need not.
func Private(stateFile *File) []string {
	paths := []string{contract.DirK}
	for _, dir := range Directories() {
		if Access(dir) == winos.AccessAdministrators && stateFile.Made(dir) {
			paths = append(paths, dir)
		}
	}
	return append(paths, contract.PathState, contract.PathDaemon, contract.PathDaemonKubeconfig,
		contract.PathDaemonCertificate, contract.PathKubeconfig, contract.PathBootstrapKubeconfig)
}

// DirCNIState is where CNI plugins remember which addresses they gave out.
const DirCNIState = `C:\var\lib\cni`

// Access is who may open what we write at this path: below C:\k, and where kubelet keeps its keys,
// containerd its images, and CNI plugins, which containerd starts, the addresses that they gave out,
// only Administrators and SYSTEM; elsewhere as the parent directory says, because log collectors in
// pods read below C:\var\log. kubelet knows no file rights on
// Windows, so its keys have those of their directory.
func Access(path string) winos.Access {
	for _, private := range []string{contract.DirK, contract.DirKubeletPKI, contract.DirContainerdData,
		DirCNIState} {
		if strings.EqualFold(path, private) || contract.Within(private, path) {
			return winos.AccessAdministrators
		}
	}
	return winos.AccessInherit
}

// Open makes C:\k if it is not there and opens the state file in it.
//
// A directory C:\k that others may write into is not trusted: an ordinary user could have made it,
// with a state file in it. It is used only when it is empty, after making it anew; otherwise the
// answer is a Problem. So is a C:\k that another operator set up. A state file that is not there, or can't be
// understood, although C:\k is recognisably ours, is begun anew: see Recover.
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
	switch {
	case state == ours && !stateFile.Exists():
		if err = Recover(files, stateFile); err != nil {
			return nil, err
		}
	case state == ours, state == spare:
		return stateFile, nil
	default:
		stateFile.AddDirectory(contract.DirK)
	}
	if err = stateFile.Save(); err != nil {
		return nil, err
	}
	return stateFile, nil
}

// Recognisable says whether this host is ours: C:\k, where only Administrators get in, has our state file, a damaged
// one, or our store. No other operator has these. It changes nothing.
func Recognisable(files winos.Files) (bool, error) {
	state, err := look(files)
	return state == ours, err
}

// Touched is Recognisable, or says that C:\k is as a call that was killed at its beginning or its end leaves it: empty,
// and for Administrators only.
func Touched(files winos.Files) (bool, error) {
	state, err := look(files)
	return state == ours || state == empty, err
}

// Recover notes in a state file that is begun anew, where C:\k is recognisably ours, that the one before
// was lost, and that C:\k and our directories in it were made by us. It does not save.
// Open calls it for the verbs, and the daemon at its start.
func Recover(files winos.Files, stateFile *File) error {
	stateFile.Lost = true
	for _, dir := range Directories() {
		for _, d := range append(parents(dir), dir) {
			if d != contract.DirK && !contract.Within(contract.DirK, d) {
				continue
			}
			there, err := winos.Exists(files, d)
			if err != nil {
				return fmt.Errorf("looking at %s: %w", d, err)
			}
			if there {
				stateFile.AddDirectory(d)
			}
		}
	}
	return nil
}

// Conflict says whether a C:\k is in the way that Open would refuse, or what UntrustedOwner finds with the same
// shared directories. It changes nothing.
func Conflict(files winos.Files, shared ...string) (*contract.Problem, error) {
	state, err := look(files)
	switch {
	case err != nil:
		return nil, err
	case state == foreign:
		return conflict(contract.DirK), nil
	case state == ours:
		return nil, nil // Ensure looks at the rest, with what the state file says
	}
	return UntrustedOwner(files, shared...)
}

// UntrustedOwner says whether one of our directories outside C:\k, or one above it, is somebody's who is no
// administrator: as its owner he could put another directory in the place of one that SYSTEM's
// programs write to. The same is asked of shared directories, which others fill and from which SYSTEM's
// programs run what they find, and of what lies in them: Windows lets users make files in a directory
// that is not theirs. What does not exist is nobody's.
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

// UntrustedAbove is UntrustedOwner for the directories above a path.
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
	return contract.NewProblem(contract.ReasonConflictingSoftware, "%s belongs to somebody who is no "+
		"administrator, or lets such a one replace it or what is in it; have Administrators own it and, by icacls, "+
		"nobody else delete or change it, or rename or remove it", path), nil
}

// dirVar is the directory above those of ours that are not in C:\k. C:\Temp is everybody's, and no
// program reads what lies there.
const dirVar = `C:\var`

// ClearKeys removes a directory of kubelet's keys that is not ours and into which others than Administrators may write,
// as another operator leaves it, and reports whether there was one. kubelet uses a private key that it finds there, so
// whoever has a copy would have the node's name. Links in it are removed, not followed.
func ClearKeys(files winos.Files, stateFile *File) (cleared bool, err error) {
	info, err := files.Stat(contract.DirKubeletPKI)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking at %s: %w", contract.DirKubeletPKI, err)
	case stateFile.Made(contract.DirKubeletPKI), info.Dir && info.Access == winos.AccessAdministrators:
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

// Trusted says whether nobody but Administrators could have written what lies in C:\k, its state
// file included. It changes nothing.
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
	empty             // ours, as a crash before the first entry of the state file leaves it
	open              // empty, but others may write into it
	ours              // only Administrators get in, and something lies there that only we write
	spare             // only Administrators get in, and nothing of a node lies there
	foreign           // others may write into it, or another operator made a node's directories
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
	var paths []string
	for _, e := range entries {
		paths = append(paths, contract.DirK+`\`+e.Name)
	}
	has := func(path string) bool { return contains(paths, path) }
	restricted := info.Access == winos.AccessAdministrators
	switch {
	case len(entries) == 0 && !restricted:
		return open, nil
	case !restricted:
		return foreign, nil
	case has(contract.PathState), has(PathDamaged), has(contract.DirStore):
		return ours, nil
	case len(entries) == 0, len(entries) == 1 && has(contract.PathState+".tmp"):
		return empty, nil // a first state file that was not finished is as good as none
	case slices.ContainsFunc(Directories(), has):
		return foreign, nil
	}
	return spare, nil
}

// Ensure makes directories and their parents, and notes those that were not there before it makes
// them. Of those that are for Administrators only, none may have been made by others meanwhile.
func Ensure(files winos.Files, stateFile *File, dirs ...string) error {
	var missing []string
	for _, dir := range dirs {
		for _, d := range append(parents(dir), dir) {
			there, err := winos.Exists(files, d)
			if err != nil {
				return fmt.Errorf("looking at %s: %w", d, err)
			}
			if !there && !slices.Contains(missing, d) {
				stateFile.AddDirectory(d)
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

// makeOne makes a directory. One that the directory above gives to users, as C:\ does on some volumes, is made anew
// with rights of its own: it can't be given them by its path, in whose place a user may have put another by then.
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

// Parent is the directory that path lies in.
func Parent(path string) string { return path[:strings.LastIndexByte(path, '\\')] }
