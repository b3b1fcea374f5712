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

// Nonroot is the ID of the user and of the group that run the operator if root runs the scene. Only root can start a
// process as a different user. Container images without a list of users also use this number for the user nonroot.
const Nonroot = 65532

// confinement restricts the operator's process like a container: the process isn't root, and it can't write to its
// working directory, its home directory and its directory for temporary files.
type confinement struct {
	// user is the ID of the user that runs the process. If it is 0, the process runs as the user that runs the scene.
	user uint32
	// sealed is a directory that the process can't write to.
	sealed string
	// dir is the directory of the scene. The process can open files in it by their names, but can't list it.
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

// changesUser reports whether this process can start a process as Nonroot. root can't do this in a user namespace that
// has only the user root.
func changesUser() bool {
	nothing, err := exec.LookPath("true")
	if err != nil {
		return false
	}
	probe := exec.Command(nothing) //nolint:noctx // the probe ends at once
	become(probe, Nonroot)
	return probe.Run() == nil
}

// apply restricts a command. The command must not have started yet.
func (c *confinement) apply(cmd *exec.Cmd) {
	cmd.Dir = c.sealed
	cmd.Env = append(cmd.Env, "HOME="+c.sealed, "TMPDIR="+c.sealed)
	if c.user != 0 {
		become(cmd, c.user)
	}
}

// The method secret writes a file that only the operator's process and the user of the scene can read.
func (c *confinement) secret(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil || c.user == 0 {
		return err
	}
	return errors.Join(os.Chown(path, 0, int(c.user)), os.Chmod(path, 0o640))
}

// lend makes a file or a directory readable for the operator's process, and returns its path. If the process can't read
// path, lend returns the path of a copy.
func (c *confinement) lend(path string) (string, error) {
	path, err := filepath.Abs(path) // the process has a different working directory
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
	// If another goroutine forks during the copy, the child process inherits the open file. The copy then can't be
	// executed (ETXTBSY).
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
		return errors.Join(err, os.Chmod(path, 0o755)) // directories and programs need the permission to execute
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

// The function readable reports whether all users can read a file or a whole directory.
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

// The function passable reports whether all users can traverse a directory and all its parents.
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
