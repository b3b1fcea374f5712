package winos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// Limits. kubelet with many pods and containerd with many images start within half a minute on slow
// disks; the service manager itself gives a service 30 s to begin to start. A stop includes the
// dependants'.
const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
)

// killLimit bounds how long the end of a killed process is waited for, and maxKills how often a
// stop is tried again after a kill: once for the service and for each layer of dependants.
const (
	killLimit = 30 * time.Second
	maxKills  = 4
)

// WithTimeouts gives a service manager whose starts and stops end in time. A start that takes too
// long is ErrStartFailed. A service that has been asked to stop and does not end has its process
// killed; ErrInUse means that this did not help either.
func WithTimeouts(services Services, programs Programs) Services { return limited{services, programs} }

type limited struct {
	Services
	programs Programs
}

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
	for kills := 0; ; kills++ {
		limit, cancel := context.WithTimeout(ctx, stopLimit)
		err := l.Services.Stop(limit, name)
		late := err != nil && limit.Err() != nil && ctx.Err() == nil
		cancel()
		if !late {
			return err
		}
		err = fmt.Errorf("waiting %s: %w: %w", stopLimit, ErrInUse, err)
		if kills == maxKills {
			return err
		}
		if killed, killErr := l.kill(ctx, name); !killed || killErr != nil {
			return errors.Join(err, killErr)
		}
	}
}

// kill ends the processes of a service and of its dependants that were asked to stop and have not
// ended.
func (l limited) kill(ctx context.Context, name string) (killed bool, err error) {
	all, err := l.List(ctx)
	if err != nil {
		return false, err
	}
	log := logr.FromContextOrDiscard(ctx)
	limit, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	chain := []string{name}
	for i := 0; i < len(chain); i++ {
		for _, other := range all {
			s, err := l.Get(ctx, other)
			if err != nil {
				continue // it has gone meanwhile
			}
			if within(s.Dependencies, chain[i]) && !within(chain, other) {
				chain = append(chain, other)
			}
			if !strings.EqualFold(other, chain[i]) || s.State != ServiceStopPending || s.PID == 0 {
				continue
			}
			log.Info("a service does not stop, and its process is killed", "service", other, "pid", s.PID)
			if err = l.programs.Kill(limit, s.PID); err != nil {
				return killed, fmt.Errorf("killing the process of service %s: %w", other, err)
			}
			killed = true
		}
	}
	return killed, nil
}

func within(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
