package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// startService starts a service and returns when the service is running. If ctx ends, startService returns, but the
// start continues.
func (s *manager) startService(ctx context.Context, name string) error {
	for {
		s.mu.Lock()
		a, err := s.begin(name)
		changed := s.changed
		s.mu.Unlock()
		switch {
		case errors.Is(err, errStopping):
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return fmt.Errorf("%w: %w", err, context.Cause(ctx))
			}
		case err != nil || a == nil:
			return err
		}
		select {
		case <-a.done:
			return a.err
		case <-ctx.Done():
			return fmt.Errorf("waiting for service %s to run: %w", name, context.Cause(ctx))
		}
	}
}

// errStopping stands for the Windows error ERROR_SERVICE_CANNOT_ACCEPT_CTRL.
var errStopping = fmt.Errorf("it is stopping: %w", winos.ErrInUse)

// begin returns the start that is in progress. If none is in progress, it begins one. If the service is running, it
// returns nil. The caller must have the lock.
func (s *manager) begin(name string) (*attempt, error) {
	v, err := s.find(name)
	switch {
	case err != nil:
		return nil, err
	case v.attempt != nil:
		return v.attempt, nil
	case v.deleted:
		return nil, fmt.Errorf("service %s is marked for deletion: %w", name, winos.ErrInUse)
	case v.state == winos.ServiceStopPending:
		return nil, fmt.Errorf("service %s: %w", name, errStopping)
	case v.state == winos.ServiceStopped && v.disabled:
		return nil, fmt.Errorf("service %s is disabled: %w", name, winos.ErrStartFailed)
	case v.state != winos.ServiceStopped:
		return nil, nil //nolint:nilnil // a running service needs no attempt
	}
	a := &attempt{done: make(chan struct{})}
	v.attempt, v.state = a, winos.ServiceStartPending
	s.notify()
	if !s.machine.spawn(func() { s.carryOut(v, a) }) {
		v.attempt, v.state = nil, winos.ServiceStopped
		return nil, ErrOff
	}
	return a, nil
}

// carryOut starts the dependencies of a service, and then the service.
func (s *manager) carryOut(v *service, a *attempt) {
	err := s.startDependencies(v)
	if err == nil {
		err = s.launch(v)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if v.state == winos.ServiceStartPending {
			v.state = winos.ServiceStopped
		}
		a.err = fmt.Errorf("starting service %s: %w", v.config.Name, err)
		s.machine.log.V(1).Info("service did not start", "service", v.config.Name, "why", err.Error())
	}
	v.attempt = nil
	close(a.done)
	s.recover(v)
	s.purge(v)
	s.notify()
}

func (s *manager) startDependencies(v *service) error {
	for {
		a, err := s.nextDependency(v)
		if err != nil || a == nil {
			return err
		}
		if <-a.done; a.err != nil {
			return fmt.Errorf("%w: a dependency failed: %w", winos.ErrStartFailed, a.err)
		}
	}
}

// nextDependency returns the start of a dependency of v that isn't running. It returns nil if all dependencies are
// running.
func (s *manager) nextDependency(v *service) (*attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range v.config.Dependencies {
		d, ok := s.services[fold(name)]
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: the dependency %s does not exist", winos.ErrStartFailed, name)
		case d.deleted:
			return nil, fmt.Errorf("%w: the dependency %s is marked for deletion", winos.ErrStartFailed, name)
		case d.state == winos.ServiceRunning:
			continue
		}
		a, err := s.begin(name)
		if err != nil {
			return nil, fmt.Errorf("%w: a dependency failed: %w", winos.ErrStartFailed, err)
		}
		if a != nil {
			return a, nil
		}
	}
	return nil, nil //nolint:nilnil // no dependency is left to wait for
}

// launch starts the process of a service and waits until the service reports that it is running.
func (s *manager) launch(v *service) error {
	m := s.machine
	s.mu.Lock()
	name, command, environment := v.config.Name, v.config.Command, cloneConfig(v.config).Environment
	s.mu.Unlock()
	argv, err := m.findExe(command)
	if err != nil {
		return fmt.Errorf("%w: %w", winos.ErrStartFailed, err)
	}
	faults := m.knobs.service(name)
	up, ended := make(chan struct{}), make(chan int, 1)
	var p *process
	ready := make(chan struct{}) // closed when p is set
	l := launch{
		argv: argv, commandLine: command, dir: systemDir, environment: environment, service: true,
		running: func() {
			<-ready
			s.running(v, p, up)
		},
		reported: func(code int) time.Duration {
			<-ready
			linger := s.reported(v, p, code)
			ended <- code
			return linger
		},
		ended: func(int) { s.gone(v, p) },
	}
	switch {
	case faults.fail:
		l.program = fails
	case faults.hangStart:
		l.program = hangs
	}
	p, err = m.start(context.Background(), l)
	if err == nil {
		s.mu.Lock()
		v.process = p
		v.alive[p] = struct{}{}
		s.mu.Unlock()
	}
	close(ready)
	if err != nil {
		return fmt.Errorf("%w: %w", winos.ErrStartFailed, err)
	}
	return s.awaitRunning(v, p, up, ended)
}

func (s *manager) awaitRunning(v *service, p *process, up <-chan struct{}, ended <-chan int) error {
	timer := time.NewTimer(s.machine.knobs.costs().ServiceStart)
	defer timer.Stop()
	select {
	case <-up:
		return nil
	case code := <-ended:
		return fmt.Errorf("%w: its process ended with %d", winos.ErrStartFailed, code)
	case <-timer.C:
	}
	if !s.giveUp(v, p) {
		return nil
	}
	s.machine.kill(p)
	<-p.gone
	return fmt.Errorf("%w: it did not respond in time", winos.ErrStartFailed)
}

// giveUp marks a service that hasn't started in time as stopped, so that the end of its process doesn't count as a
// crash. If the service is running now, giveUp returns false.
func (s *manager) giveUp(v *service, p *process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.process == p && v.state == winos.ServiceRunning {
		return false
	}
	v.state = winos.ServiceStopped
	s.notify()
	return true
}

func fails(context.Context, *Process) int { return 1 }

func hangs(ctx context.Context, _ *Process) int {
	<-ctx.Done()
	return 0
}

// The method running is called when the process of a service reports that the service is running.
func (s *manager) running(v *service, p *process, up chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.process != p || v.state != winos.ServiceStartPending {
		return
	}
	v.state = winos.ServiceRunning
	close(up)
	s.notify()
}

// The method reported is called when the program of a service has ended. It returns how long the process remains.
func (s *manager) reported(v *service, p *process, code int) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.process != p || v.state == winos.ServiceStopped {
		return 0
	}
	asked := v.state == winos.ServiceStopPending
	v.state = winos.ServiceStopped
	v.crashed = code != 0 // even after a stop request
	if v.attempt == nil {
		s.recover(v)
	}
	s.notify()
	if !asked {
		return 0
	}
	return s.machine.knobs.service(v.config.Name).linger
}

// The method gone is called when the process of a service has ended completely.
func (s *manager) gone(v *service, p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(v.alive, p)
	s.purge(v)
	s.notify()
}

// findExe finds the exe in the command line of a service. If the path has spaces but no quotation marks, findExe tries
// the first word, then the first two words and so on, like CreateProcess.
func (m *Machine) findExe(command string) ([]string, error) {
	argv := splitCommandLine(command)
	if len(argv) == 0 {
		return nil, errors.New("the command line is empty")
	}
	if strings.HasPrefix(strings.TrimLeft(command, " \t"), `"`) {
		return argv, nil
	}
	for i := 1; i <= len(argv); i++ {
		path := strings.Join(argv[:i], " ")
		for _, candidate := range []string{path, path + ".exe"} {
			if info, err := m.volume.stat(candidate); err == nil && !info.Dir {
				return append([]string{candidate}, argv[i:]...), nil
			}
		}
	}
	return argv, nil
}
