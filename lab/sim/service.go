package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// ErrOff is the error of calls while the machine is off or goes down.
var ErrOff = errors.New("the machine is off")

// manager is the service control manager.
//
//	Stopped ──Start──▶ StartPending ──Running()──▶ Running ──Stop──▶ StopPending ──program returns──▶ Stopped
//	                        │ returns, hangs, fails      │ returns or is killed          process may linger │
//	                        ▼                            ▼                                               ▼
//	                     Stopped ◀── restart after the recovery delay, unless it ended with 0         process gone
type manager struct {
	machine *Machine

	mu       sync.Mutex
	services map[string]*service // by folded name
	on       bool
	// changed is closed and replaced when the state of a service changes.
	changed chan struct{}
}

type service struct {
	config winos.ServiceConfig
	state  winos.ServiceState
	// process is the current process, or the last process of a stopped service. alive contains all processes that
	// haven't ended completely.
	process *process
	alive   map[*process]struct{}
	// frozen is the process that doesn't answer the service manager. It is nil if there is none.
	frozen *process
	// attempt is the start that is in progress. It is nil if there is none.
	attempt *attempt
	// crashed is true from a crash of the service until the recovery settings have been applied.
	crashed bool
	// failures is the number of failures since the last reset. lastFailure is the time of the last failure. retry is
	// the restart that is scheduled because of the failures.
	failures    int
	lastFailure time.Time
	retry       *time.Timer
	// holders is how many handles of the service are open. A deleted service remains until all handles are closed.
	holders int
	deleted bool
	// disabled means that the service can't be started until it is configured again.
	disabled bool
}

// attempt is one start of a service. Several callers can wait for the same start.
type attempt struct {
	done chan struct{}
	err  error
}

func newManager(m *Machine) *manager {
	return &manager{machine: m, services: map[string]*service{}, changed: make(chan struct{})}
}

// notify wakes all goroutines that wait for a change of state. The caller must have the lock.
func (s *manager) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *manager) find(name string) (*service, error) {
	if err := checkServiceName(name); err != nil {
		return nil, err
	}
	if !s.on {
		return nil, ErrOff
	}
	v, ok := s.services[fold(name)]
	if !ok {
		return nil, fmt.Errorf("service %s: %w", name, winos.ErrNotFound)
	}
	return v, nil
}

func (s *manager) list() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return nil, ErrOff
	}
	names := make([]string, 0, len(s.services))
	for _, key := range sortedKeys(s.services) {
		names = append(names, s.services[key].config.Name)
	}
	return names, nil
}

func (s *manager) get(name string) (winos.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.find(name)
	if err != nil {
		return winos.Service{}, err
	}
	answer := winos.Service{ServiceConfig: cloneConfig(v.config), State: v.state, NoAutoStart: v.disabled}
	if v.process != nil {
		if _, alive := v.alive[v.process]; alive {
			answer.PID = v.process.pid
		}
	}
	return answer, nil
}

func (s *manager) apply(config winos.ServiceConfig) error {
	if err := checkConfig(config); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return ErrOff
	}
	v, exists := s.services[fold(config.Name)]
	if exists && v.deleted {
		return fmt.Errorf("service %s is marked for deletion: %w", config.Name, winos.ErrInUse)
	}
	if s.circular(config) {
		return fmt.Errorf("service %s: %w", config.Name, errCircular)
	}
	config = cloneConfig(config)
	if exists {
		config.Name = v.config.Name
		v.config, v.disabled = config, false
		return nil
	}
	s.services[fold(config.Name)] = &service{config: config, state: winos.ServiceStopped,
		alive: map[*process]struct{}{}}
	return nil
}

// disable prevents a service from starting until it is configured again. If the service is running, it continues to
// run.
func (s *manager) disable(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.find(name)
	if err == nil {
		v.disabled = true
	}
	return err
}

// errCircular stands for the Windows error ERROR_CIRCULAR_DEPENDENCY.
var errCircular = errors.New("the service would depend on itself")

// The method circular reports whether a service with this configuration would depend on itself, directly or through
// other services.
func (s *manager) circular(config winos.ServiceConfig) bool {
	seen := map[string]bool{}
	var reaches func(dependencies []string) bool
	reaches = func(dependencies []string) bool {
		for _, name := range dependencies {
			key := fold(name)
			if key == fold(config.Name) {
				return true
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			if v, ok := s.services[key]; ok && reaches(v.config.Dependencies) {
				return true
			}
		}
		return false
	}
	return reaches(config.Dependencies)
}

// longestDelete is the maximum time that a deletion waits for other handles of the service to be closed.
const longestDelete = 30 * time.Second

// delete deletes a stopped service. If other handles of the service are open, delete marks the service for deletion.
// The service is then removed when the last handle is closed.
func (s *manager) delete(ctx context.Context, name string) error {
	s.mu.Lock()
	v, err := s.find(name)
	if err == nil && (v.state != winos.ServiceStopped || v.attempt != nil) {
		err = fmt.Errorf("deleting service %s, which is %s: %w", name, v.state, winos.ErrInUse)
	}
	if err == nil {
		v.deleted = true
		s.purge(v)
	}
	s.mu.Unlock()
	if err != nil {
		if errors.Is(err, winos.ErrNotFound) {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, longestDelete)
	defer cancel()
	if err := s.wait(ctx, func() bool { return s.services[fold(name)] != v }); err != nil {
		return fmt.Errorf("deleting service %s, which another program has open: %w: %w", name, winos.ErrInUse, err)
	}
	return nil
}

// deleteAtStop marks a service for deletion, even if the service is running.
func (s *manager) deleteAtStop(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.find(name)
	if err == nil {
		v.deleted = true
		s.purge(v)
	}
	return err
}

// purge removes a service that is marked for deletion. It does this only if the service is stopped and no handle is
// open.
func (s *manager) purge(v *service) {
	if !v.deleted || v.state != winos.ServiceStopped || v.holders > 0 || s.services[fold(v.config.Name)] != v {
		return
	}
	v.cancelRetry()
	delete(s.services, fold(v.config.Name))
	s.notify()
}

// hold opens a handle of a service, as the Services console does. The service can't be removed until release is called.
func (s *manager) hold(name string) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.find(name)
	if err != nil {
		return nil, err
	}
	v.holders++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		v.holders--
		s.purge(v)
	}), nil
}

// wait waits until `ready` returns true, or until ctx ends. It calls `ready` while it has the lock.
func (s *manager) wait(ctx context.Context, ready func() bool) error {
	for {
		s.mu.Lock()
		done, changed := ready(), s.changed
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func checkConfig(config winos.ServiceConfig) error {
	if err := checkServiceName(config.Name); err != nil {
		return err
	}
	if strings.TrimSpace(config.Command) == "" || strings.ContainsRune(config.Command, 0) {
		return fmt.Errorf("command of service %s: %w", config.Name, winos.ErrInvalidName)
	}
	for _, dependency := range config.Dependencies {
		if err := checkServiceName(dependency); err != nil {
			return fmt.Errorf("dependency of service %s: %w", config.Name, err)
		}
	}
	for name, value := range config.Environment {
		if err := checkVariable(name, value); err != nil {
			return fmt.Errorf("environment of service %s: %w", config.Name, err)
		}
	}
	return nil
}

func checkServiceName(name string) error {
	if name == "" || len(utf16.Encode([]rune(name))) > 256 || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("service name %q: %w", name, winos.ErrInvalidName)
	}
	return nil
}

// cloneConfig copies a configuration. It rounds times in the same way as Windows: delays to milliseconds, and the reset
// period to seconds.
func cloneConfig(config winos.ServiceConfig) winos.ServiceConfig {
	config.Dependencies = slices.Clone(config.Dependencies)
	config.Environment = maps.Clone(config.Environment)
	config.Recovery = slices.Clone(config.Recovery)
	for i, delay := range config.Recovery {
		config.Recovery[i] = roundUp(delay, time.Millisecond)
	}
	config.RecoveryReset = roundUp(config.RecoveryReset, time.Second)
	if len(config.Dependencies) == 0 {
		config.Dependencies = nil
	}
	if len(config.Environment) == 0 {
		config.Environment = nil
	}
	if len(config.Recovery) == 0 {
		config.Recovery = nil
	}
	return config
}

func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }
