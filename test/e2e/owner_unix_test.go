//go:build unix

package e2e_test

import (
	"io/fs"
	"math"
	"syscall"
)

// owner returns the user id of a file's owner.
func owner(info fs.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return math.MaxUint32
}
