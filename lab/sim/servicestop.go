package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// stopService stops the running services that depend on a service, and then the service itself. It returns when the
// processes of these services have ended.
func (s *manager) stopService(ctx context.Context, name string) error {
	var v *service
	for {
		s.mu.Lock()
		found, err := s.find(name)
		switch {
		case err == nil:
			v = found
		case v == nil || !errors.Is(err, winos.ErrNotFound):
			s.mu.Unlock()
			return err
		default: // the process of a stopped service may still run, for example while a deletion is pending
		}
		dependant := s.activeDependant(name)
		if dependant == "" {
			s.ask(v)
		}
		changed, frozen := s.changed, v.isFrozen()
		over := v.state == winos.ServiceStopped && len(v.alive) == 0 && v.attempt == nil
		s.mu.Unlock()
		switch {
		case over && dependant == "":
			return nil
		case dependant != "":
			if err := s.stopService(ctx, dependant); err != nil && !errors.Is(err, winos.ErrNotFound) {
				return err
			}
			continue
		}
		if frozen {
			err = s.awaitAnswer(ctx, v, name)
		} else {
			err = awaitStop(ctx, changed, name)
		}
		if err != nil {
			return err
		}
	}
}

func awaitStop(ctx context.Context, changed <-chan struct{}, name string) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for service %s to stop: %w: %w", name, winos.ErrInUse, context.Cause(ctx))
	}
}

func (v *service) isFrozen() bool {
	return v.state == winos.ServiceRunning && v.process != nil && v.process == v.frozen
}

// awaitAnswer waits until a frozen process answers a stop request. If the process ends during this time, awaitAnswer
// returns nil. Otherwise it returns an error.
func (s *manager) awaitAnswer(ctx context.Context, v *service, name string) error {
	limit, cancel := context.WithTimeout(ctx, s.machine.knobs.costs().ServiceControl)
	defer cancel()
	err := s.wait(limit, func() bool { return !v.isFrozen() })
	if err == nil {
		return nil
	}
	return fmt.Errorf("service %s has not answered a request to stop: %w: %w", name, winos.ErrInUse,
		context.Cause(limit))
}

// ask sends a stop request to a running service. A service that is starting doesn't accept stop requests, and a frozen
// service doesn't answer them.
func (s *manager) ask(v *service) {
	if v.state != winos.ServiceRunning || v.isFrozen() {
		return
	}
	v.state = winos.ServiceStopPending
	if !s.machine.knobs.service(v.config.Name).hangStop {
		v.process.stop(errAsked)
	}
	s.notify()
}

// The method dependants lists the services to stop before this service, in the order of their stops.
func (s *manager) dependants(name string) ([]string, error) {
	if err := checkServiceName(name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return nil, ErrOff
	}
	var order []string
	var walk func(name string)
	walk = func(name string) {
		for _, key := range sortedKeys(s.services) {
			v := s.services[key]
			needs := slices.ContainsFunc(v.config.Dependencies, func(d string) bool { return fold(d) == fold(name) })
			if needs && v.state != winos.ServiceStopped && !slices.Contains(order, v.config.Name) {
				walk(v.config.Name)
				order = append(order, v.config.Name)
			}
		}
	}
	walk(name)
	return order, nil
}

// activeDependant returns the name of a service that depends on this service and isn't stopped. If there is none, it
// returns an empty string.
func (s *manager) activeDependant(name string) string {
	for _, key := range sortedKeys(s.services) {
		v := s.services[key]
		if v.state == winos.ServiceStopped {
			continue
		}
		for _, dependency := range v.config.Dependencies {
			if fold(dependency) == fold(name) {
				return v.config.Name
			}
		}
	}
	return ""
}

// If a service has crashed, recover applies its recovery settings. As on Windows, only a shutdown or the deletion of
// the service cancels a restart that was scheduled. If the service is already running at the scheduled time, the
// restart does nothing.
func (s *manager) recover(v *service) {
	if !v.crashed {
		return
	}
	v.crashed = false
	now := time.Now()
	if reset := v.config.RecoveryReset; reset > 0 && now.Sub(v.lastFailure) >= reset {
		v.failures = 0
	}
	v.failures++
	v.lastFailure = now
	delays := v.config.Recovery
	if len(delays) == 0 || v.deleted || !s.on {
		return
	}
	v.cancelRetry()
	v.retry = time.AfterFunc(delays[min(v.failures, len(delays))-1], func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.services[fold(v.config.Name)] == v {
			_, _ = s.begin(v.config.Name)
		}
	})
}

func (v *service) cancelRetry() {
	if v.retry != nil {
		v.retry.Stop()
		v.retry = nil
	}
}

// powerOn makes the service manager accept requests, and starts all services.
func (s *manager) powerOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = true
	for _, key := range sortedKeys(s.services) {
		_, _ = s.begin(s.services[key].config.Name)
	}
}

// powerOff makes the service manager refuse all requests. The services stop when their processes end.
func (s *manager) powerOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
	for _, v := range s.services {
		v.cancelRetry()
		v.failures, v.lastFailure = 0, time.Time{}
		if v.state == winos.ServiceRunning {
			v.state = winos.ServiceStopPending
		}
	}
	s.notify()
}

// settled waits until all services are stopped. The caller must first call powerOff and ask all processes to end.
func (s *manager) settled() {
	_ = s.wait(context.Background(), func() bool {
		for _, v := range s.services {
			if v.state != winos.ServiceStopped || len(v.alive) > 0 || v.attempt != nil {
				return false
			}
		}
		return true
	})
}

// crash kills the process of a service.
func (s *manager) crash(name string) error {
	s.mu.Lock()
	v, err := s.findAlive(name)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	p := v.process // the service may soon be started again
	s.mu.Unlock()
	s.machine.kill(p)
	return nil
}

// freeze makes the process of a service stop answering the service manager.
func (s *manager) freeze(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.findAlive(name)
	if err == nil {
		v.frozen = v.process
	}
	return err
}

// findAlive finds a service and requires that it has a process. The caller must have the lock.
func (s *manager) findAlive(name string) (*service, error) {
	v, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if _, alive := v.alive[v.process]; !alive {
		return nil, fmt.Errorf("process of service %s: %w", name, winos.ErrNotFound)
	}
	return v, nil
}
