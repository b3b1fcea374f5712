package scene

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Nonroot is the user and group of the operator's process if root runs the scene. Only root can choose the user. Images
// without a list of users use this number for nonroot.
const Nonroot = 65532

// confinement restricts the process of the operator like its container does: it doesn't run as root, and its working
// directory, home directory and directory for temporary files are not writable.
type confinement struct {
	// user is the user of the process. If 0, the process runs as the user of the scene.
	user uint32
	// sealed is the read-only directory.
	sealed string
	// dir is the directory of the scene. The process can traverse it but not list it.
	dir  string
	lent int
}

func newConfinement(dir string) (*confinement, error) {
	c := &confinement{sealed: filepath.Join(dir, "sealed"), dir: dir}
	if err := os.Mkdir(c.sealed, 0o555); err != nil {
		return nil, fmt.Errorf("making a directory without anything: %w", err)
	}
	if os.Geteuid() != 0 {
		return c, nil
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("opening a way through the scene's directory: %w", err)
	}
	if passable(dir) && changesUser() {
		c.user = Nonroot
	}
	return c, nil
}

// changesUser reports whether this process can start others as Nonroot. root in its own user namespace can't.
func changesUser() bool {
	nothing, err := exec.LookPath("true")
	if err != nil {
		return false
	}
	probe := exec.Command(nothing) //nolint:noctx // it ends at once
	become(probe, Nonroot)
	return probe.Run() == nil
}

// apply confines a command that hasn't started yet.
func (c *confinement) apply(cmd *exec.Cmd) {
	cmd.Dir = c.sealed
	cmd.Env = append(cmd.Env, "HOME="+c.sealed, "TMPDIR="+c.sealed)
	if c.user != 0 {
		become(cmd, c.user)
	}
}

// secret writes a file that only the process and the user of the scene can read.
func (c *confinement) secret(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil || c.user == 0 {
		return err
	}
	return errors.Join(os.Chown(path, 0, int(c.user)), os.Chmod(path, 0o640))
}

// lend returns a path where the process can read the file at path: the same path, or a copy if the process can't access
// it.
func (c *confinement) lend(path string) (string, error) {
	path, err := filepath.Abs(path) // the process has another working directory
	if err != nil {
		return "", fmt.Errorf("finding %s for the operator: %w", path, err)
	}
	if c.user == 0 || readable(path) {
		return path, nil
	}
	c.lent++
	to := filepath.Join(c.dir, "lent-"+strconv.Itoa(c.lent))
	if err := duplicate(path, to); err != nil {
		return "", fmt.Errorf("copying %s for the operator: %w", path, err)
	}
	return to, nil
}

func duplicate(from, to string) error {
	// A process that is forked during the copy would inherit the open file, and then the copy can't be executed
	// (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		err = os.CopyFS(to, os.DirFS(from))
	default:
		err = copyFile(from, to)
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chmod(path, 0o755)) // directories and programs need the x bits
	})
}

func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// readable reports whether all users can read a file or a whole directory.
func readable(path string) bool {
	if !passable(filepath.Dir(path)) {
		return false
	}
	err := filepath.WalkDir(path, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && (info.Mode().Perm()&0o004 == 0 || info.IsDir() && info.Mode().Perm()&0o001 == 0) {
			err = fs.ErrPermission
		}
		return err
	})
	return err == nil
}

// passable reports whether all users can traverse a directory and all its parents.
func passable(dir string) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}
