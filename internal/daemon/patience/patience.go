// Package patience answers how long the daemon waits for a service that neither starts nor stops.
//
// The command tree wraps the service manager in it, so that no verb and no pass of the reconcile
// loop hangs for ever on one broken program.
package patience

import (
	"context"
	"fmt"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Limits. kubelet with many pods and containerd with many images start within half a minute on slow
// disks; the service manager itself gives a service 30 s to begin to start. A stop includes the
// dependants'.
const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
)

// Services is a service manager whose starts and stops end in time. A start that takes too long is
// winos.ErrStartFailed, a stop winos.ErrInUse.
func Services(services winos.Services) winos.Services { return limited{services} }

type limited struct{ winos.Services }

var _ winos.Services = limited{}

// Start is winos.Services.
func (l limited) Start(ctx context.Context, name string) error {
	limit, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := l.Services.Start(limit, name)
	if err != nil && limit.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("waiting %s: %w: %w", startLimit, winos.ErrStartFailed, err)
	}
	return err
}

// Stop is winos.Services.
func (l limited) Stop(ctx context.Context, name string) error {
	limit, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	err := l.Services.Stop(limit, name)
	if err != nil && limit.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("waiting %s: %w: %w", stopLimit, winos.ErrInUse, err)
	}
	return err
}
