package winostest

import (
	"errors"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// RemoveEach is RemoveAll for a file system whose process may be killed between two deletions.
func RemoveEach(files winos.Files, path string) error {
	info, err := files.Stat(path)
	if err != nil || !info.Dir {
		return files.Remove(path)
	}
	entries, err := files.List(path)
	all := []error{err}
	for _, e := range entries {
		all = append(all, RemoveEach(files, path+`\`+e.Name))
	}
	return errors.Join(append(all, files.Remove(path))...)
}
