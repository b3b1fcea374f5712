//go:build !windows

package main

import (
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// serveHNS needs the pipes of Windows.
func serveHNS(winos.Host) error { return winos.ErrUnsupported }

const restartArgument = "restart"

// startRestarter needs the service manager of Windows.
func startRestarter() error { return nil }

// restartDaemon needs it as well.
func restartDaemon() {}
