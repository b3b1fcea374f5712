//go:build linux

package wine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A copy of a template shares the large files of C:\windows with it through hard links: about 900 files with 690 MB. No
// program writes them in place: a program that replaces such a file creates a new one. Machine.Close verifies that the
// files are unchanged. All other files, including the registry, are copied.

// shareFrom is the minimum size of shared files.
const shareFrom = 16 << 10

// stamp detects whether a file was written.
type stamp struct {
	size     int64
	modified time.Time
}

func shared(path string, info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() >= shareFrom &&
		strings.HasPrefix(path, filepath.Join("drive_c", "windows")+string(filepath.Separator))
}

// stamps returns the files that a template shares with its copies.
func stamps(prefix string) (map[string]stamp, error) {
	all := map[string]stamp{}
	err := filepath.WalkDir(prefix, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if relative, _ := filepath.Rel(prefix, path); shared(relative, info) {
			all[relative] = stamp{info.Size(), info.ModTime()}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing the template: %w", err)
	}
	return all, nil
}

// check returns an error if a shared file was written. In this case, it removes the template, because it is damaged.
func (t *Template) check() error {
	for path, was := range t.linked {
		info, err := os.Lstat(filepath.Join(t.prefix, path))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process has removed the template; running hosts have their own links
		}
		if err != nil {
			return fmt.Errorf("checking the template: %w", err)
		}
		if info.Size() != was.size || !info.ModTime().Equal(was.modified) {
			return errors.Join(fmt.Errorf("a host wrote to %s, which it shares with others; the template is removed",
				path), os.RemoveAll(t.prefix))
		}
	}
	return nil
}

// clone creates a prefix at a path that doesn't exist.
func (t *Template) clone(to string) error {
	err := filepath.WalkDir(t.prefix, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(t.prefix, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return os.Mkdir(target, 0o755)
		case entry.Type() == fs.ModeSymlink:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case shared(relative, info):
			return os.Link(path, target)
		}
		return copyFile(path, target, info.Mode().Perm())
	})
	if err != nil {
		return fmt.Errorf("copying the template: %w", err)
	}
	return personalize(filepath.Join(to, "system.reg"))
}

func copyFile(from, to string, mode fs.FileMode) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	_, err = io.Copy(target, source)
	return err
}
