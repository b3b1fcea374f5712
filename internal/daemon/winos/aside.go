package winos

import (
	"strconv"
	"strings"
)

// asideMark stands before the number in the name of a program that makes room.
const asideMark = ".old-"

// AsidePath is the name under which the running program at path makes room for another, by number.
func AsidePath(path string, number int) string { return path + asideMark + strconv.Itoa(number) }

// StartedPath is the path that a program had when it was started: Windows names a process by where its
// exe is now, which may be an AsidePath. A program is never moved aside twice.
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
