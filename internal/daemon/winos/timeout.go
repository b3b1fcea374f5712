package winos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
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

// WithTimeouts gives a service manager whose starts and stops end in time, and that leaves no
// process behind. A start that takes too long is ErrStartFailed. A service that has been asked to
// stop and does not end has its processes killed; ErrInUse means that this did not help either.
//
// After a stop, and before a start, whatever runs a program of the service's command line is killed
// too: csi-proxy reports that it has stopped and goes on, and of a wrapped program Windows ends the
// wrapper only. Two of one program would fight over ports and pipes.
func WithTimeouts(services Services, programs Programs) Services { return limited{services, programs} }

type limited struct {
	Services
	programs Programs
}

var _ Services = limited{}

// Start is Services.
func (l limited) Start(ctx context.Context, name string) error {
	found, err := l.Get(ctx, name)
	if err != nil {
		return err
	}
	if found.State == ServiceStopped {
		if _, err = l.killPrograms(ctx, found); err != nil {
			return fmt.Errorf("ending what is left of service %s: %w", name, err)
		}
	}
	limit, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err = l.Services.Start(limit, name)
	if err != nil && limit.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("waiting %s: %w: %w", startLimit, ErrStartFailed, err)
	}
	return err
}

// Stop is Services.
func (l limited) Stop(ctx context.Context, name string) error {
	service, err := l.Get(ctx, name)
	if err != nil {
		return err
	}
	for kills := 0; ; kills++ {
		err := l.stop(ctx, name)
		if err != nil && !errors.Is(err, ErrInUse) {
			return err
		}
		var killed bool
		if err != nil {
			var killErr error
			if killed, killErr = l.killPending(ctx, name); killErr != nil {
				return errors.Join(err, killErr)
			}
		}
		left, leftErr := l.killPrograms(ctx, service)
		if leftErr != nil {
			return errors.Join(err, fmt.Errorf("ending what is left of service %s: %w", name, leftErr))
		}
		if err == nil || kills == maxKills || !killed && !left {
			return err
		}
	}
}

// stop asks once. ErrInUse says that the service, or one that needs it, did not end.
func (l limited) stop(ctx context.Context, name string) error {
	limit, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	err := l.Services.Stop(limit, name)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("stopping service %s: %w", name, context.Cause(ctx))
	case limit.Err() != nil:
		return fmt.Errorf("waiting %s: %w: %w", stopLimit, ErrInUse, err)
	}
	return err
}

// killPending kills the processes of a service and of its dependants that neither run nor have
// ended.
func (l limited) killPending(ctx context.Context, name string) (killed bool, err error) {
	all, err := l.List(ctx)
	if err != nil {
		return false, err
	}
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
			pending := s.State == ServiceStopPending || s.State == ServiceStartPending
			if !strings.EqualFold(other, chain[i]) || !pending || s.PID == 0 {
				continue
			}
			exes := append(contract.Programs(s.Command), contract.Executable(s.Command))
			if err = l.kill(ctx, s, s.PID, exes...); err != nil {
				return killed, fmt.Errorf("killing the process of service %s: %w", other, err)
			}
			killed = true
		}
	}
	return killed, nil
}

// killPrograms kills every process that runs a program of a service's command line. The daemon's
// own exe is left out: it also runs verbs and the rollback watchdog.
func (l limited) killPrograms(ctx context.Context, s Service) (killed bool, err error) {
	for _, exe := range contract.Programs(s.Command) {
		if strings.EqualFold(exe, contract.PathDaemon) || strings.EqualFold(exe, contract.PathGuard) {
			continue
		}
		left, err := l.programs.Processes(ctx, exe)
		if errors.Is(err, ErrUnsupported) {
			return killed, nil
		}
		if err != nil {
			return killed, err
		}
		for _, p := range left {
			if err = l.kill(ctx, s, p.PID, exe); err != nil {
				return killed, err
			}
			killed = true
		}
	}
	return killed, nil
}

func (l limited) kill(ctx context.Context, s Service, pid uint32, exes ...string) error {
	logr.FromContextOrDiscard(ctx).Info("a program goes on after its service was to end, and is killed", "service",
		s.Name, "pid", pid, "exe", strings.Join(exes, " "))
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	return l.programs.Kill(ctx, pid, Runs(exes...))
}

// Runs recognises a process by the absolute path of its exe.
func Runs(exes ...string) func(exe string) bool {
	return func(exe string) bool { return within(exes, exe) }
}

func within(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
