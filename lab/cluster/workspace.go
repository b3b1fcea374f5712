package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// workspacePrefix is the prefix of all data directories that Start creates.
const workspacePrefix = "wmco-lab-"

// workspace is the data directory of a cluster. It contains keys, so only its owner has access.
//
// A directory in the system's temporary folder contains a file named lock, which is locked while the lab is running. If
// the lock is free, a killed lab left the directory, and the next start removes it. A kept directory has no such file.
type workspace struct {
	dir  string
	keep bool
	lock *os.File
}

// TempDir creates the directory of a lab in the system's temporary folder, and removes the directories of killed labs.
// The function remove deletes the new directory unless keep is true.
func TempDir(keep bool) (dir string, remove func() error, err error) {
	w, err := openWorkspace("", keep)
	if err != nil {
		return "", nil, err
	}
	return w.dir, w.remove, nil
}

// openWorkspace creates the data directory: a new temporary directory if dir is empty, and otherwise dir, which must be
// empty or absent.
func openWorkspace(dir string, keep bool) (*workspace, error) {
	if dir != "" {
		return openNamedWorkspace(dir, keep)
	}
	sweepAbandoned(os.TempDir())
	dir, err := os.MkdirTemp("", workspacePrefix)
	if err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	w := &workspace{dir: dir, keep: keep}
	if keep {
		return w, nil
	}
	if err := w.takeLock(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("locking the data directory: %w", err)
	}
	return w, nil
}

func openNamedWorkspace(dir string, keep bool) (*workspace, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the data directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the data directory: %w", err)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("the data directory %s is not empty: use an empty one, because Stop removes it", dir)
	}
	return &workspace{dir: dir, keep: keep}, nil
}

// takeLock renames the lock file to its final name only after it is locked, so that no other lab finds it unlocked.
func (w *workspace) takeLock() error {
	lock, err := os.OpenFile(w.path("lock.new"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	w.lock = lock
	if _, err := tryLock(lock); err != nil {
		return err
	}
	return os.Rename(w.path("lock.new"), w.path("lock"))
}

func (w *workspace) path(elements ...string) string {
	return filepath.Join(append([]string{w.dir}, elements...)...)
}

// empty removes the files of an earlier start attempt, except the lock, and creates the folders that components need.
func (w *workspace) empty() error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return fmt.Errorf("emptying the data directory: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == "lock" {
			continue
		}
		if err := os.RemoveAll(w.path(entry.Name())); err != nil {
			return fmt.Errorf("emptying the data directory: %w", err)
		}
	}
	if err := os.Mkdir(w.path("etcd"), 0o700); err != nil {
		return fmt.Errorf("making etcd's directory: %w", err)
	}
	return nil
}

// write writes a file that only its owner can read, and returns its path.
func (w *workspace) write(name string, content []byte) (string, error) {
	path := w.path(name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return "", fmt.Errorf("writing %s: %w", name, err)
	}
	return path, nil
}

// remove deletes the directory unless it is kept. It releases the lock last.
func (w *workspace) remove() error {
	if w.lock != nil {
		defer w.lock.Close()
	}
	if w.keep {
		return nil
	}
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("removing the data directory: %w", err)
	}
	return nil
}

// sweepAbandoned removes the directories of killed labs. It ignores directories that it can't remove, such as
// directories of other users.
func sweepAbandoned(folder string) {
	if !fileLocksWork {
		return
	}
	locks, err := filepath.Glob(filepath.Join(folder, workspacePrefix+"*", "lock"))
	if err != nil {
		return
	}
	for _, name := range locks {
		lock, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, err := tryLock(lock); free && err == nil {
			_ = os.RemoveAll(filepath.Dir(name))
		}
		lock.Close()
	}
}
