//go:build !windows

package main

import (
	"context"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// runService needs the service manager of Windows.
func runService(context.Context, string, func(ctx context.Context, running func()) error) error {
	return winos.ErrUnsupported
}
