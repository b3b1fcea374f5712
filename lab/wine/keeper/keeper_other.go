//go:build !windows

package main

import (
	"context"
	"io"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// serveHNS needs the pipes of Windows.
func serveHNS(winos.Host) error { return winos.ErrUnsupported }

const restartArgument = "restart"

// startRestarter needs the service manager of Windows.
func startRestarter(context.Context) (io.Closer, error) { return nil, winos.ErrUnsupported }

// restartDaemon needs it as well.
func restartDaemon() {}
