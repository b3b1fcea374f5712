package winos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// WithTimeouts gives a host on which starts and stops of services end in time and leave no process
// behind, and calls of the host network service end in time.
//
// A start that takes too long is ErrStartFailed, and the process of a managed service is killed. A service that has
// been asked to stop and does not end, or whose process does not answer, has its processes killed; ErrInUse means that
// this did not help either.
//
// After a stop, and before a start, whatever runs a program of the service's command line is killed
// too: csi-proxy reports that it has stopped and goes on, and of a wrapped program Windows ends the
// wrapper only. Two of one program would fight over ports and pipes.
func WithTimeouts(host Host) Host {
	host.Services = limited{host.Services, host.Programs}
	host.Network = &limitedNetwork{Network: host.Network}
	return host
}

// hnsLimit bounds a call of the host network service, which may take seconds where many pods start;
// hnsRemovalLimit that which removes a network and its endpoints, one by one. hnsLeft is how many calls
// may be left behind.
const (
	hnsLimit        = 30 * time.Second
	hnsRemovalLimit = 2 * time.Minute
	hnsLeft         = 4
)

var errNoHNSAnswer = errors.New("the host network service has not answered in time")

// limitedNetwork is a Network whose calls of the host network service end in time. Such a call can't
// be interrupted: one that is given up is left to itself, with a context that has ended.
type limitedNetwork struct {
	Network
	// left are calls that were given up and have not ended.
	left atomic.Int32
	// changing is held by the call that changes something, given up or not. Another that looks meanwhile
	// does not see what the first is about to make, and would make it once more.
	changing sync.Mutex
}

// HNSNetwork is Network.
func (l *limitedNetwork) HNSNetwork(ctx context.Context, name string) (HNSNetwork, error) {
	return callHNS(ctx, &l.left, hnsLimit, func(ctx context.Context) (HNSNetwork, error) {
		return l.Network.HNSNetwork(ctx, name)
	})
}

// EnsureEndpoint is Network.
func (l *limitedNetwork) EnsureEndpoint(ctx context.Context, network, endpoint string,
	address netip.Addr) (netip.Addr, error) {
	return callHNS(ctx, &l.left, hnsLimit, func(ctx context.Context) (ip netip.Addr, err error) {
		err = l.change(func() (err error) {
			ip, err = l.Network.EnsureEndpoint(ctx, network, endpoint, address)
			return err
		})
		return ip, err
	})
}

// RemoveHNSNetwork is Network.
func (l *limitedNetwork) RemoveHNSNetwork(ctx context.Context, name string) error {
	_, err := callHNS(ctx, &l.left, hnsRemovalLimit, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.change(func() error { return l.Network.RemoveHNSNetwork(ctx, name) })
	})
	return err
}

// change makes a call that changes something, unless another one is still under way.
func (l *limitedNetwork) change(call func() error) error {
	if !l.changing.TryLock() {
		return fmt.Errorf("an earlier change: %w", errNoHNSAnswer)
	}
	defer l.changing.Unlock()
	return call()
}

// callHNS makes a call, and leaves it when its time is over or ctx ends. While too many are left it
// makes none.
func callHNS[T any](ctx context.Context, left *atomic.Int32, limit time.Duration,
	call func(ctx context.Context) (T, error)) (none T, err error) {
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if left.Load() >= hnsLeft {
		return none, errNoHNSAnswer
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer) // received, or given up
	givenUp, cancel := context.WithTimeoutCause(ctx, limit, errNoHNSAnswer)
	defer cancel()
	go func() {
		value, err := call(givenUp)
		select {
		case answered <- answer{value, err}:
		case <-givenUp.Done():
			left.Add(-1)
		}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-givenUp.Done():
		left.Add(1)
		return none, context.Cause(givenUp)
	}
}

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
	err = UntilClosed(limit.Done(), func() error { return l.Services.Start(limit, name) }) // a new program is scanned
	if err == nil || ctx.Err() != nil {
		return err
	}
	if limit.Err() != nil {
		err = fmt.Errorf("waiting %s: %w: %w", startLimit, ErrStartFailed, err)
	}
	return errors.Join(err, l.killStarting(ctx, name))
}

// killStarting kills the process of a managed service that has not come up in time. The service manager leaves one
// alone that has answered it and does not report that it runs, and starts no other meanwhile.
func (l limited) killStarting(ctx context.Context, name string) error {
	found, err := l.Get(ctx, name)
	if err != nil || found.State != ServiceStartPending || found.PID == 0 ||
		!contract.IsManaged(found.Description) {
		return err
	}
	if err = l.killProcess(ctx, found); err != nil {
		return fmt.Errorf("killing the process of service %s: %w", name, err)
	}
	return nil
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
			if killed, killErr = l.killHung(ctx, name, err); killErr != nil {
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

// killHung kills the processes of a service and of its dependants that neither run nor have ended, and
// of the one that did not answer, as stopErr may say: that one passes for running.
func (l limited) killHung(ctx context.Context, name string, stopErr error) (killed bool, err error) {
	var silent UnansweredError
	errors.As(stopErr, &silent)
	dependants, err := l.Dependants(ctx, name)
	if err != nil {
		return false, err
	}
	for _, service := range append([]string{name}, dependants...) {
		s, err := l.Get(ctx, service)
		if err != nil {
			continue // it has gone meanwhile
		}
		hung := s.State == ServiceStopPending || s.State == ServiceStartPending ||
			strings.EqualFold(service, silent.Service)
		if !hung || s.PID == 0 {
			continue
		}
		if err = l.killProcess(ctx, s); err != nil {
			return killed, fmt.Errorf("killing the process of service %s: %w", service, err)
		}
		killed = true
	}
	return killed, nil
}

// killPrograms kills every process that runs a program of a service's command line. The daemon's
// own exe is left out: it also runs verbs. So are those of services of others, which may have processes beside, as
// svchost.exe has.
func (l limited) killPrograms(ctx context.Context, s Service) (killed bool, err error) {
	for _, exe := range contract.Programs(s.Command) {
		ours := contract.Within(contract.DirK, exe) || contract.IsManaged(s.Description)
		if !ours || strings.EqualFold(exe, contract.PathDaemon) {
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

// killProcess kills the process of a service.
func (l limited) killProcess(ctx context.Context, s Service) error {
	return l.kill(ctx, s, s.PID, append(contract.Programs(s.Command), contract.Executable(s.Command))...)
}

func (l limited) kill(ctx context.Context, s Service, pid uint32, exes ...string) error {
	logr.FromContextOrDiscard(ctx).Info("a program whose service did not start or end in time is killed", "service",
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
