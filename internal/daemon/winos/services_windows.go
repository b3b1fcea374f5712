package winos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// services is this machine's service manager. It closes each handle before a call ends, because Windows doesn't delete
// a service while a handle is open.
type services struct{}

var _ Services = services{}

// longestDelete limits the wait for other programs to close a service. An open Services console never closes it.
const longestDelete = 30 * time.Second

// pollInterval is short, because a query is a cheap local call, and because a join waits for the result.
const pollInterval = 50 * time.Millisecond

func (services) List(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	scm, err := connect(windows.SC_MANAGER_CONNECT | windows.SC_MANAGER_ENUMERATE_SERVICE)
	if err != nil {
		return nil, err
	}
	defer disconnect(scm)
	names, err := scm.ListServices()
	return names, fail(err, "listing services")
}

func (services) Get(ctx context.Context, name string) (Service, error) {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return Service{}, err
	}
	s, err := openService(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return Service{}, err
	}
	defer closeService(s)
	config, err := s.Config()
	if err != nil {
		return Service{}, fail(err, "reading the configuration of service %s", name)
	}
	delays, reset, err := recoveryOf(s)
	if err != nil {
		return Service{}, err
	}
	lines, err := serviceEnvironment(name)
	if err != nil {
		return Service{}, err
	}
	status, err := s.Query()
	if err != nil {
		return Service{}, fail(err, "querying service %s", name)
	}
	return Service{
		ServiceConfig: ServiceConfig{
			Name:          name,
			Description:   config.Description,
			Command:       config.BinaryPathName,
			Dependencies:  config.Dependencies,
			Environment:   decodeEnvironment(lines),
			Recovery:      delays,
			RecoveryReset: reset,
		},
		State:       serviceState(uint32(status.State)),
		PID:         status.ProcessId,
		NoAutoStart: config.StartType != mgr.StartAutomatic,
	}, nil
}

// Apply implements Services. It reads the configuration first and writes only the differences. If the creation of a
// service was interrupted, the next Apply completes it.
func (services) Apply(ctx context.Context, config ServiceConfig) error {
	if err := errors.Join(ctx.Err(), checkServiceConfig(config)); err != nil {
		return err
	}
	lines, err := encodeEnvironment(config.Environment)
	if err != nil {
		return fmt.Errorf("environment of service %s: %w", config.Name, err)
	}
	// To set a restart as a recovery action, a program needs the right to start the service.
	s, err := openService(config.Name,
		windows.SERVICE_QUERY_CONFIG|windows.SERVICE_CHANGE_CONFIG|windows.SERVICE_START)
	if errors.Is(err, ErrNotFound) {
		s, err = createService(config)
	}
	if err != nil {
		return err
	}
	defer closeService(s)
	if err := applyConfig(s, config); err != nil {
		return err
	}
	if err := applyRecovery(s, config.Recovery, config.RecoveryReset); err != nil {
		return err
	}
	return applyServiceEnvironment(config.Name, lines)
}

func (services) Start(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return err
	}
	s, err := openService(name, windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return err
	}
	defer closeService(s)
	asked := false
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (running bool, err error) {
		status, err := s.Query()
		if err != nil {
			return false, fail(err, "querying service %s", name)
		}
		switch status.State {
		case svc.Running:
			return true, nil
		case svc.Stopped:
			if asked {
				return false, fmt.Errorf("starting service %s: %w: its process ended with code %d (%d of the service)",
					name, ErrStartFailed, status.Win32ExitCode, status.ServiceSpecificExitCode)
			}
			asked, err = startService(ctx, name)
		case svc.StopPending:
			return false, fmt.Errorf("starting service %s: %w: it is still stopping", name, ErrInUse)
		case svc.Paused:
			err = controlService(ctx, name, windows.SERVICE_PAUSE_CONTINUE, svc.Continue)
		}
		return false, err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("waiting for service %s to run: %w", name, err)
	}
	return err
}

func (s services) Stop(ctx context.Context, name string) error {
	if err := s.stopDependants(ctx, name); err != nil {
		return err
	}
	return s.stopOne(ctx, name)
}

func (services) Dependants(ctx context.Context, name string) ([]string, error) {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return nil, err
	}
	s, err := openService(name, windows.SERVICE_ENUMERATE_DEPENDENTS)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closeService(s)
	// The list also contains the dependants of dependants, in the reverse order of their start.
	names, err := s.ListDependentServices(svc.Active)
	return names, fail(err, "listing dependants of service %s", name)
}

func (s services) stopDependants(ctx context.Context, name string) error {
	names, err := s.Dependants(ctx, name)
	if err != nil {
		return err
	}
	for _, dependant := range names {
		if err := s.stopOne(ctx, dependant); err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("stopping %s, which needs %s: %w", dependant, name, err)
		}
	}
	return nil
}

// stopOne stops a service whose dependants have already stopped. It waits until the service's process has ended,
// because the exe is in use until then.
func (s services) stopOne(ctx context.Context, name string) error {
	h, err := openService(name, windows.SERVICE_QUERY_STATUS|windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return err
	}
	defer closeService(h)
	// Open the process before the stop. After the stop, the service manager no longer knows the process.
	process, err := serviceProcess(h)
	if err != nil {
		return err
	}
	defer process.close()
	asked := false
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (stopped bool, err error) {
		status, err := h.Query()
		if err != nil {
			return false, fail(err, "querying service %s", name)
		}
		if !asked && (status.State == svc.Running || status.State == svc.Paused) {
			if asked, err = s.askToStop(ctx, name); err != nil && !process.ended() {
				return false, err
			}
		}
		return status.State == svc.Stopped, nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("waiting for service %s to stop: %w: %w", name, ErrInUse, err)
	case err != nil:
		return err
	}
	if err := process.wait(ctx); err != nil {
		// Don't return ErrInUse. limited.Stop would then kill the next service, which was not asked to stop yet.
		return fmt.Errorf("waiting for the process of service %s to end: %w", name, err)
	}
	return nil
}

// askToStop sends the request to stop. If the service can't accept the request at this moment, `asked` is false.
func (s services) askToStop(ctx context.Context, name string) (asked bool, err error) {
	err = controlService(ctx, name, windows.SERVICE_STOP, svc.Stop)
	switch {
	case errors.Is(err, windows.ERROR_DEPENDENT_SERVICES_RUNNING): // a dependant was started in the meantime
		return false, s.stopDependants(ctx, name)
	case errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL), errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE):
		return false, nil // the service's state is changing
	case errors.Is(err, windows.ERROR_SERVICE_REQUEST_TIMEOUT): // the service's process is suspended or hangs
		return false, fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return err == nil, err
}

func (s services) Delete(ctx context.Context, name string) error {
	found, err := s.Get(ctx, name)
	if err == nil && found.State != ServiceStopped {
		return fmt.Errorf("deleting service %s: %w: its state is %s", name, ErrInUse, found.State)
	}
	if err == nil {
		err = s.DeleteAtStop(ctx, name)
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil && !errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longestDelete)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (gone bool, err error) {
		h, err := openService(name, windows.SERVICE_QUERY_STATUS)
		switch {
		case errors.Is(err, ErrNotFound):
			return true, nil
		case err == nil:
			closeService(h)
		case errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE):
			err = nil
		}
		return false, err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("deleting service %s: %w: it is marked for deletion, and another program has it open: %w",
			name, ErrInUse, err)
	}
	return err
}

func (services) DeleteAtStop(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return err
	}
	const deletion = 0x10000 // DELETE, a standard right
	s, err := openService(name, deletion)
	if err != nil {
		return err
	}
	defer closeService(s)
	err = s.Delete()
	if errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
		return nil
	}
	return fail(err, "deleting service %s", name)
}
