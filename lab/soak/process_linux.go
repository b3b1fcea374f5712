package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The function process reads from /proc what a process uses.
func process(id int) (p Process, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(id))
	open, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return p, fmt.Errorf("counting descriptors: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "statm"))
	if err != nil {
		return p, fmt.Errorf("reading how much memory is resident: %w", err)
	}
	// proc_pid_statm(5): the second field is resident pages
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return p, fmt.Errorf("reading how much memory is resident: %q is not the format of statm", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return p, fmt.Errorf("reading how much memory is resident: %w", err)
	}
	return Process{Descriptors: len(open), Resident: pages * int64(os.Getpagesize())}, nil
}
