package winos

import (
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
)

// asideMark precedes the number in the name of a program that was moved aside.
const asideMark = ".old-"

// AsidePath returns the new path of a running program that is renamed to make room for its successor.
func AsidePath(path string, number int) string { return path + asideMark + strconv.Itoa(number) }

// RemoveInUse moves a running program to a unique path, and makes the next boot delete it there. If the next boot
// deleted the original path instead, it would also delete a new file at that path.
func RemoveInUse(host Host, path string) error {
	away := `C:\Windows\Temp\wmco-` + rand.Text() + ".old"
	if err := host.Files.Rename(path, away); err != nil {
		return err
	}
	if err := host.Programs.RemoveAtBoot(away); err != nil {
		return errors.Join(err, host.Files.Rename(away, path))
	}
	return nil
}

// StartedPath returns the path that a program had when it started. path is the current path of the program's exe, which
// may be an AsidePath. A program is moved aside only once.
func StartedPath(path string) string {
	first := strings.TrimRight(path, "0123456789")
	if first == path {
		return path
	}
	end := len(first) - len(asideMark)
	if end <= 0 || first[end-1] == '\\' || !strings.EqualFold(first[end:], asideMark) {
		return path
	}
	return first[:end]
}
