package winos

import (
	"context"
	"fmt"
	"time"
)

// Limits. kubelet with many pods and containerd with many images start within half a minute on slow
// disks; the service manager itself gives a service 30 s to begin to start. A stop includes the
// dependants'.
const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
)

// WithTimeouts gives a service manager whose starts and stops end in time. A start that takes too long is
// ErrStartFailed, a stop ErrInUse.
func WithTimeouts(services Services) Services { return limited{services} }

type limited struct{ Services }

var _ Services = limited{}

// Start is Services.
func (l limited) Start(ctx context.Context, name string) error {
	limit, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := l.Services.Start(limit, name)
	if err != nil && limit.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("waiting %s: %w: %w", startLimit, ErrStartFailed, err)
	}
	return err
}

// Stop is Services.
func (l limited) Stop(ctx context.Context, name string) error {
	limit, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	err := l.Services.Stop(limit, name)
	if err != nil && limit.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("waiting %s: %w: %w", stopLimit, ErrInUse, err)
	}
	return err
}
