//go:build !windows

package main

import (
	"context"
	"io"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// serveHNS fails, because only Windows has the pipes that it needs.
func serveHNS(winos.Host) error { return winos.ErrUnsupported }

const restartArgument = "restart"

// startRestarter fails, because only Windows has a service manager.
func startRestarter(context.Context) (io.Closer, error) { return nil, winos.ErrUnsupported }

// restartDaemon does nothing, because only Windows has a service manager.
func restartDaemon() {}
