//go:build !windows

package main

import (
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// serveHNS needs the pipes of Windows.
func serveHNS(winos.Host) error { return winos.ErrUnsupported }

// restartDaemon needs the service manager of Windows.
func restartDaemon() {}
