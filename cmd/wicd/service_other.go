//go:build !windows

package main

import (
	"context"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// runService fails, because only Windows has a service manager.
func runService(context.Context, string, func(ctx context.Context, running func()) error) error {
	return winos.ErrUnsupported
}
