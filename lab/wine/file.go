//go:build linux

package wine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Path returns the path on this machine for a path on drive C:. It finds existing files case-insensitively, and keeps
// the spelling of other names. It doesn't validate the path: see OpenFile.
func (m *Machine) Path(windows string) string {
	path := filepath.Join(m.prefix, "drive_c")
	for name := range strings.SplitSeq(strings.TrimLeft(windows[min(len(windows), len(`C:`)):], `\`), `\`) {
		path = filepath.Join(path, spelled(path, name))
	}
	return path
}

// spelled returns the actual spelling of a name in a directory.
func spelled(dir, name string) string {
	if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
		return name
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return name
	}
	for _, e := range entries {
		if strings.EqualFold(e.Name(), name) {
			return e.Name()
		}
	}
	return name
}

// OpenFile opens a file by its Windows path for SFTP. It doesn't use Wine, so SFTP can read and write the file at any
// offset. The rights of a new file are the rights of its directory. The exe of a running process can't be written.
func (m *Machine) OpenFile(path string, flag int) (sshd.File, error) {
	if m.session() == nil {
		return nil, ErrOff
	}
	if err := winos.CheckPath(path); err != nil {
		return nil, err
	}
	if !strings.EqualFold(path[:len(`C:`)], `C:`) {
		return nil, fmt.Errorf("opening %s: %w", path, os.ErrNotExist)
	}
	file, err := os.OpenFile(m.Path(path), flag, 0o600)
	switch {
	case errors.Is(err, syscall.ETXTBSY):
		err = fmt.Errorf("%w: %w", winos.ErrInUse, err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EISDIR):
		err = fmt.Errorf("%w: %w", winos.ErrDenied, err)
	case errors.Is(err, syscall.ENOSPC):
		err = fmt.Errorf("%w: %w", winos.ErrNoSpace, err)
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}
