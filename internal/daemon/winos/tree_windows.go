package winos

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// RemoveAll implements Files. It opens each directory relative to its parent directory, which is already open. If it
// used paths, someone could meanwhile replace a parent directory with a link.
func (f files) RemoveAll(path string) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	cut := strings.LastIndexByte(path, '\\') + 1
	if cut == len(path) {
		return fail(ErrDenied, "removing the drive %s", path)
	}
	above, err := os.OpenRoot(verbatim(path[:cut]))
	if err != nil {
		if _, gone := f.Stat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
		return fail(err, "opening what is above %s", path)
	}
	defer func() { _ = above.Close() }()
	return removeTree(above, path[cut:], path)
}

// removeTree deletes a file, or a directory with its content, in the open directory `above`. The path is used only for
// errors and for the check of the name.
func removeTree(above *os.Root, name, path string) error {
	if err := CheckPath(path); err != nil {
		return err // Windows and os.Root would interpret such a name differently
	}
	err := removeName(above, name, path)
	if err == nil {
		return nil
	}
	dir, opened := openDirectory(above, name)
	if dir == nil {
		return errors.Join(err, fail(opened, "opening %s", path))
	}
	return errors.Join(removeContent(dir, path), removeName(above, name, path))
}

// removeContent empties an open directory and closes it. Windows can't delete the directory until it is closed.
func removeContent(dir *os.Root, path string) error {
	entries, err := fs.ReadDir(dir.FS(), ".")
	all := []error{fail(err, "listing %s", path)}
	for _, entry := range entries {
		all = append(all, removeTree(dir, entry.Name(), path+`\`+entry.Name()))
	}
	return errors.Join(append(all, dir.Close())...)
}

// openDirectory opens a subdirectory. For a link or a file, it returns nil.
func openDirectory(above *os.Root, name string) (*os.Root, error) {
	info, err := above.Lstat(name)
	if err != nil || !info.IsDir() {
		return nil, err
	}
	dir, err := above.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	// After the call of Lstat, someone may have replaced the directory with a link to another directory.
	opened, err := dir.Stat(".")
	if err == nil && os.SameFile(info, opened) {
		return dir, nil
	}
	return nil, errors.Join(err, dir.Close())
}

// removeName deletes a file, a link or an empty directory, even if it is read-only.
func removeName(above *os.Root, name, path string) error {
	err := above.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err = reasonOf(err, func() error {
		_ = above.Chmod(name, 0o600) // otherwise the read-only flag would also deny writing
		file, err := above.OpenFile(name, os.O_WRONLY, 0)
		if err == nil {
			_ = file.Close()
		}
		return err
	})
	return fail(err, "removing %s", path)
}
