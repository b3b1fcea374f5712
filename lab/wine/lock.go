//go:build linux

package wine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lock takes the lock of a file. If another process holds it, lock waits. The lock ends when release is called or the
// process ends.
func lock(ctx context.Context, path string) (release func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		locked, err := tryLock(file)
		if locked {
			return func() { _ = file.Close() }, nil
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), file.Close())
		case <-ticker.C:
		}
	}
}

// tryLock takes the lock of an open file unless another process holds it.
func tryLock(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// claim creates the directory of a host. The caller owns the directory until the caller releases the lock in it.
func claim(hosts string) (dir string, release func() error, err error) {
	dir, err = os.MkdirTemp(hosts, "partial-")
	if err != nil {
		return "", nil, fmt.Errorf("making the host's directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("locking the host's directory: %w", err), os.RemoveAll(dir))
	}
	if _, err = tryLock(file); err != nil {
		return "", nil, errors.Join(fmt.Errorf("locking the host's directory: %w", err), file.Close(),
			os.RemoveAll(dir))
	}
	// sweepAbandoned ignores a directory until it has such a name.
	locked := filepath.Join(hosts, "host-"+filepath.Base(dir)[len("partial-"):])
	if err = os.Rename(dir, locked); err != nil {
		return "", nil, errors.Join(fmt.Errorf("naming the host's directory: %w", err), file.Close(), os.RemoveAll(dir))
	}
	return locked, func() error { return errors.Join(os.RemoveAll(locked), file.Close()) }, nil
}

// sweepAbandoned removes the processes and files of killed labs. The kernel may already have ended the processes.
func sweepAbandoned(hosts string) {
	locks, err := filepath.Glob(filepath.Join(hosts, "host-*", "lock"))
	if err != nil {
		return
	}
	for _, name := range locks {
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, err := tryLock(file); free && err == nil {
			dir := filepath.Dir(name)
			sweep(filepath.Join(dir, "prefix"))
			_ = os.RemoveAll(dir)
		}
		_ = file.Close()
	}
}
