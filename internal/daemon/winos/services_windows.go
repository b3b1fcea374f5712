package winos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// services is this machine's service manager. It keeps no handle between calls, because an open handle keeps
// a deleted service alive.
type services struct{}

var _ Services = services{}

// longestDelete limits how long Delete waits until other programs close their handles of a service. An open
// service console holds its handle forever.
const longestDelete = 30 * time.Second

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
	h, err := openService(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return Service{}, err
	}
	defer h.close()
	config, err := h.config()
	if err != nil {
		return Service{}, err
	}
	failure, err := h.recovery()
	if err != nil {
		return Service{}, err
	}
	description, err := h.description()
	if err != nil {
		return Service{}, err
	}
	lines, err := serviceEnvironment(name)
	if err != nil {
		return Service{}, err
	}
	status, err := h.status()
	if err != nil {
		return Service{}, err
	}
	service := Service{
		ServiceConfig: ServiceConfig{
			Name:         name,
			Description:  description,
			Command:      config.command,
			Dependencies: config.dependencies,
			Environment:  decodeEnvironment(lines),
		},
		State:       serviceState(uint32(status.State)),
		PID:         status.ProcessId,
		NoAutoStart: config.start != windows.SERVICE_AUTO_START,
	}
	service.Recovery, service.RecoveryReset = decodeRecovery(failure)
	return service, nil
}

// Apply reads the configuration first and writes only the differences. The next Apply completes a creation
// that was interrupted.
func (services) Apply(ctx context.Context, config ServiceConfig) error {
	if err := errors.Join(ctx.Err(), checkServiceConfig(config)); err != nil {
		return err
	}
	failure, err := encodeRecovery(config.Recovery, config.RecoveryReset)
	if err != nil {
		return fmt.Errorf("recovery of service %s: %w", config.Name, err)
	}
	lines, err := encodeEnvironment(config.Environment)
	if err != nil {
		return fmt.Errorf("environment of service %s: %w", config.Name, err)
	}
	// Setting a restart as recovery action needs the right to start the service.
	const access = windows.SERVICE_QUERY_CONFIG | windows.SERVICE_CHANGE_CONFIG | windows.SERVICE_START
	h, err := openService(config.Name, access)
	if errors.Is(err, ErrNotFound) {
		h, err = createService(config, access)
	}
	if err != nil {
		return err
	}
	defer h.close()
	for _, step := range []func() error{
		func() error { return h.applyConfig(config) },
		func() error { return h.applyDescription(config.Description) },
		func() error { return h.applyRecovery(failure) },
		func() error { return h.applyFailureFlag(len(failure.Actions) > 0) },
		func() error { return applyServiceEnvironment(config.Name, lines) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Start also starts the service's dependencies. Windows would start them itself, but this way the error names
// the service that failed. Wine doesn't start them.
func (s services) Start(ctx context.Context, name string) error { return s.start(ctx, name, nil) }

// start starts a service. waiting are the services that wait for it.
func (s services) start(ctx context.Context, name string, waiting []string) error {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return err
	}
	h, err := openService(name, windows.SERVICE_QUERY_STATUS|windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return err
	}
	defer h.close()
	asked := false
	var wait pendingWait
	for {
		status, err := h.status()
		if err != nil {
			return err
		}
		switch status.State {
		case svc.Running:
			return nil
		case svc.Stopped:
			if asked {
				return fmt.Errorf("starting service %s: %w: its process ended with code %d (%d of the service)",
					name, ErrStartFailed, status.Win32ExitCode, status.ServiceSpecificExitCode)
			}
			if err = s.startNeeded(ctx, h, waiting); err == nil {
				asked, err = startService(ctx, name)
			}
		case svc.StopPending:
			return fmt.Errorf("starting service %s: %w: it is still stopping", name, ErrInUse)
		case svc.Paused:
			err = controlService(ctx, name, svc.Continue)
		}
		if err != nil {
			return err
		}
		pause, stalled := wait.next(time.Now(), status.CheckPoint, status.hint)
		if stalled {
			return fmt.Errorf("starting service %s: %w: it stands still as %s", name, ErrStartFailed,
				serviceState(uint32(status.State)))
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("waiting for service %s to run: %w", name, err)
		}
	}
}

// startNeeded starts the dependencies of a service. Windows rejects cyclic dependencies. Wine doesn't.
func (s services) startNeeded(ctx context.Context, h serviceHandle, waiting []string) error {
	if slices.ContainsFunc(waiting, func(other string) bool { return strings.EqualFold(other, h.name) }) {
		return fmt.Errorf("starting service %s: %w: it needs itself", h.name, ErrStartFailed)
	}
	config, err := h.config()
	if err != nil {
		return err
	}
	waiting = append(slices.Clip(waiting), h.name)
	for _, needed := range config.dependencies {
		if strings.HasPrefix(needed, loadOrderGroup) {
			continue
		}
		if err := s.start(ctx, needed, waiting); err != nil {
			// The other service's error is quoted and not wrapped: for example, its ErrNotFound isn't about
			// this service.
			return fmt.Errorf("starting service %s, which needs %s: %w: %v", h.name, needed, ErrStartFailed,
				err) //nolint:errorlint // see above
		}
	}
	return nil
}

func (s services) Stop(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return err
	}
	all, err := s.Dependants(ctx, name)
	if err != nil {
		return err
	}
	for _, dependant := range all {
		// A service that no longer exists needs no stop.
		if err := s.stopOne(ctx, dependant); err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("stopping %s, which needs %s: %w", dependant, name, err)
		}
	}
	return s.stopOne(ctx, name)
}

func (services) Dependants(ctx context.Context, name string) ([]string, error) {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return nil, err
	}
	needs, err := activeServices(ctx)
	return dependants(needs, name), err
}

// stopOne stops a service whose dependants have stopped. It waits for the end of the service's process,
// because the exe is in use until then.
func (s services) stopOne(ctx context.Context, name string) error {
	h, err := openService(
		name, windows.SERVICE_QUERY_STATUS|windows.SERVICE_QUERY_CONFIG|windows.SERVICE_ENUMERATE_DEPENDENTS)
	if err != nil {
		return err
	}
	defer h.close()
	status, err := h.status()
	if err != nil {
		return err
	}
	// Look up the process before the stop, because the service manager forgets it afterwards.
	process, err := h.process(status)
	if err != nil {
		return err
	}
	defer process.close()
	asked := false
	var wait pendingWait
	for status.State != svc.Stopped {
		if !asked && (status.State == svc.Running || status.State == svc.Paused) {
			if asked, err = s.askToStop(ctx, h); err != nil && !process.ended() {
				return err
			}
		}
		pause, stalled := wait.next(time.Now(), status.CheckPoint, status.hint)
		if stalled {
			state := serviceState(uint32(status.State))
			return fmt.Errorf("stopping service %s: %w: it stands still as %s", name, unfinished(name, state), state)
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("waiting for service %s to stop: %w: %w", name,
				unfinished(name, serviceState(uint32(status.State))), err)
		}
		if status, err = h.status(); err != nil {
			return err
		}
	}
	if err := process.wait(ctx); err != nil {
		return fmt.Errorf("waiting for the process of service %s to end: %w: %w", name, ErrInUse, err)
	}
	return nil
}

// askToStop sends the request to stop. asked is false if the service can't accept it at this moment.
func (s services) askToStop(ctx context.Context, h serviceHandle) (asked bool, err error) {
	err = controlService(ctx, h.name, svc.Stop)
	switch {
	case errors.Is(err, windows.ERROR_DEPENDENT_SERVICES_RUNNING):
		// A dependant was started since then, or depends on the service's load order group.
		return false, s.stopDependants(ctx, h)
	case errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL), errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE):
		return false, nil // its state is just changing
	}
	return err == nil, stopError(h.name, code(err), err)
}

func (s services) stopDependants(ctx context.Context, h serviceHandle) error {
	names, err := (&mgr.Service{Name: h.name, Handle: h.handle}).ListDependentServices(svc.Active)
	if err != nil {
		return fail(err, "listing dependants of service %s", h.name)
	}
	// Stop them in the reverse order of their start.
	for _, name := range names {
		if err := s.stopOne(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("stopping %s, which needs %s: %w", name, h.name, err)
		}
	}
	return nil
}

func (services) Delete(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return err
	}
	err := deleteService(name)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE):
		// Someone else has deleted it already. Wait for the end of the deletion.
	case err != nil:
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longestDelete)
	defer cancel()
	for {
		h, err := openService(name, windows.SERVICE_QUERY_STATUS)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			h.close()
		} else if !errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
			return err
		}
		if err := sleep(ctx, slowestLook); err != nil {
			return fmt.Errorf("deleting service %s: %w: it is marked for deletion, and another program has it open: "+
				"%w", name,
				ErrInUse, err)
		}
	}
}

// DeleteAtStop implements Services.
func (services) DeleteAtStop(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkServiceName(name)); err != nil {
		return err
	}
	const deletion = 0x10000 // DELETE, a standard right
	h, err := openService(name, deletion)
	if err != nil {
		return err
	}
	defer h.close()
	err = fail(windows.DeleteService(h.handle), "deleting service %s", name)
	if errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
		return nil
	}
	return err
}

func deleteService(name string) error {
	const deletion = 0x10000 // DELETE, a standard right
	h, err := openService(name, deletion|windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return err
	}
	defer h.close()
	status, err := h.status()
	if err != nil {
		return err
	}
	if status.State != svc.Stopped {
		return fmt.Errorf("deleting service %s: %w: its state is %s", name, ErrInUse,
			serviceState(uint32(status.State)))
	}
	return fail(windows.DeleteService(h.handle), "deleting service %s", name)
}

// activeServices returns the dependencies of each service that isn't stopped. EnumDependentServices answers
// this for one service, but not on Wine. Reading all configurations takes about 10 ms.
func activeServices(ctx context.Context) (map[string][]string, error) {
	scm, err := connect(windows.SC_MANAGER_CONNECT | windows.SC_MANAGER_ENUMERATE_SERVICE)
	if err != nil {
		return nil, err
	}
	defer disconnect(scm)
	names, err := scm.ListServices()
	if err != nil {
		return nil, fail(err, "listing services")
	}
	needs := map[string][]string{}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// If a service can't be read, it is deleted, protected or broken. Such a service must not prevent the stop
		// of another service. If it depends on that service after all, Windows refuses the stop, and askToStop
		// stops the dependants.
		if config, active, err := activeConfig(name); err == nil && active {
			needs[name] = slices.DeleteFunc(config.dependencies, func(s string) bool {
				return strings.HasPrefix(s, loadOrderGroup)
			})
		}
	}
	return needs, nil
}

// loadOrderGroup marks a dependency on a group of services (SC_GROUP_IDENTIFIER).
const loadOrderGroup = "+"

func activeConfig(name string) (serviceConfig, bool, error) {
	h, err := openService(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return serviceConfig{}, false, err
	}
	defer h.close()
	status, err := h.status()
	if err != nil || status.State == svc.Stopped {
		return serviceConfig{}, false, err
	}
	config, err := h.config()
	return config, true, err
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
