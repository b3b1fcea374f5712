//go:build unix

package cluster

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// fileLocksWork is true, because a free lock proves that its owner has ended.
const fileLocksWork = true

// tryLock takes the lock of an open file unless another process holds it. The lock belongs to the open file: it ends
// when the file is closed, at the latest when the process ends for any reason.
func tryLock(file *os.File) (bool, error) {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
