package winos

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Ending is a service manager that ends the processes of a service which does not stop in time, and
// those of an earlier run before it starts a service: csi-proxy reports that it has stopped and
// goes on, and of a wrapped program Windows ends the wrapper only. Two of one program would fight
// over ports and pipes.
func Ending(services Services, programs Programs) Services {
	return ending{Services: services, programs: programs}
}

type ending struct {
	Services
	programs Programs
}

var _ Services = ending{}

// Start is Services.
func (e ending) Start(ctx context.Context, name string) error {
	found, err := e.Get(ctx, name)
	if err != nil {
		return err
	}
	if found.State == ServiceStopped {
		if err = e.endAll(ctx, found); err != nil {
			return fmt.Errorf("ending what is left of service %s: %w", name, err)
		}
	}
	return e.Services.Start(ctx, name)
}

// Stop is Services.
func (e ending) Stop(ctx context.Context, name string) error {
	before, err := e.Get(ctx, name)
	if err != nil {
		return err
	}
	if err = e.Services.Stop(ctx, name); err != nil && (ctx.Err() != nil || !errors.Is(err, ErrInUse)) {
		return err
	}
	stuck := err
	if err = e.endAll(ctx, before); err != nil {
		return errors.Join(stuck, fmt.Errorf("ending what is left of service %s: %w", name, err))
	}
	if stuck == nil {
		return nil
	}
	return e.Services.Stop(ctx, name)
}

// endAll ends every process that runs a program of a service's command line. The daemon's own exe
// is left out: it also runs verbs and the rollback watchdog.
func (e ending) endAll(ctx context.Context, s Service) error {
	for _, exe := range contract.Programs(s.Command) {
		if strings.EqualFold(exe, contract.PathDaemon) || strings.EqualFold(exe, contract.PathGuard) {
			continue
		}
		left, err := e.programs.Processes(ctx, exe)
		if errors.Is(err, ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, p := range left {
			logr.FromContextOrDiscard(ctx).Info("a program goes on after its service and is killed", "service", s.Name,
				"exe", exe, "pid", p.PID)
			if err = e.programs.Kill(ctx, p.PID); err != nil {
				return err
			}
		}
	}
	return nil
}
