package winos

import (
	"strconv"
	"strings"
)

// asideMark precedes the number in the name of a program that was moved aside.
const asideMark = ".old-"

// AsidePath returns the new name of a running program that makes room for its successor.
func AsidePath(path string, number int) string { return path + asideMark + strconv.Itoa(number) }

// StartedPath returns the path that a program had when it started. Windows reports the current path of a process's
// exe, which may be an AsidePath. A program is never moved aside twice.
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
