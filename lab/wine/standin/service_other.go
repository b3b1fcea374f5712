//go:build !windows

package main

import (
	"fmt"
	"os"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// serve fails, because only Windows has a service manager.
func serve(name string, _ *sim.Process, _ sim.Program) int {
	fmt.Fprintf(os.Stderr, "running %s as a service: %v\n", name, winos.ErrUnsupported)
	return 1
}

// makeNetwork fails, because only Windows has the host network service.
func makeNetwork(winos.HNSNetwork) (winos.HNSNetwork, error) {
	return winos.HNSNetwork{}, winos.ErrUnsupported
}

// protect fails, because only Windows has these process rights.
func protect() error { return winos.ErrUnsupported }
