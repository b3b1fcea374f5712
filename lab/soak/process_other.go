//go:build !linux

package soak

// process returns nothing, because only Linux has /proc.
func process(int) (Process, error) { return Process{}, nil }
