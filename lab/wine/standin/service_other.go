//go:build !windows

package main

import (
	"fmt"
	"os"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// serve needs the service manager of Windows.
func serve(name string, _ *sim.Process, _ sim.Program) int {
	fmt.Fprintf(os.Stderr, "running %s as a service: %v\n", name, winos.ErrUnsupported)
	return 1
}

// makeNetwork needs the host network service of Windows.
func makeNetwork(winos.HNSNetwork) (winos.HNSNetwork, error) {
	return winos.HNSNetwork{}, winos.ErrUnsupported
}

// protect needs the process rights of Windows.
func protect() error { return winos.ErrUnsupported }
