//go:build !linux

package cluster

import "os"

// running reports whether a process exists.
func running(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(nil) == nil
}
