package winos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// startLimit is generous: on slow disks, kubelet with many pods and containerd with many images start in half a minute.
// The service manager itself gives a service 30 s to begin its start. stopLimit is for a service together with its
// dependants.
const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
)

// killLimit is the maximum time to wait until a killed process has ended. After a kill, a stop is retried at most
// maxKills times, because the service and several dependants may hang.
const (
	killLimit = 30 * time.Second
	maxKills  = 4
)

// WithTimeouts returns a host with two guarantees. Calls that start or stop services or use HNS have a time limit. A
// stopped service leaves no process behind.
//
// If a start takes too long, it fails with ErrStartFailed, and the process of a managed service is killed. If a service
// doesn't end after a stop request, or its process doesn't answer, its process is killed. If the kill has no effect
// either, the stop fails with ErrInUse.
//
// After a stop and before a start, all processes that run a program in the service's command line are killed as well.
// This is needed for csi-proxy, which reports that it stopped but continues to run. It is also needed for a program in
// a wrapper, because Windows ends only the wrapper. Two processes of one program would conflict over ports and pipes.
func WithTimeouts(host Host) Host {
	host.Services = limited{host.Services, host.Programs}
	host.Network = limitedNetwork{host.Network, make(chan struct{}, hnsReads), make(chan struct{}, 1)}
	return host
}

// An HNS call may take seconds while many pods start. The removal of a network takes longer, because it deletes the
// network's endpoints one by one. At most hnsReads calls that only read may run at once. This includes abandoned calls.
const (
	hnsLimit        = 30 * time.Second
	hnsRemovalLimit = 2 * time.Minute
	hnsReads        = 4
)

var errNoHNSAnswer = errors.New("the host network service has not answered in time")

// limitedNetwork is a Network with time limits for HNS calls. An HNS call can't be interrupted. If the call times out,
// limitedNetwork cancels the call's context and returns an error, and the abandoned call continues in the background.
type limitedNetwork struct {
	Network
	// Each channel holds an entry per running call. Only one call that changes HNS may run. Otherwise a second call
	// would not see the object that the first call is creating, and would create it again.
	reads, changes chan struct{}
}

func (l limitedNetwork) HNSNetwork(ctx context.Context, name string) (HNSNetwork, error) {
	return callHNS(ctx, l.reads, hnsLimit, func(ctx context.Context) (HNSNetwork, error) {
		return l.Network.HNSNetwork(ctx, name)
	})
}

func (l limitedNetwork) EnsureEndpoint(ctx context.Context, network, endpoint string,
	address netip.Addr) (netip.Addr, error) {
	return callHNS(ctx, l.changes, hnsLimit, func(ctx context.Context) (netip.Addr, error) {
		return l.Network.EnsureEndpoint(ctx, network, endpoint, address)
	})
}

func (l limitedNetwork) RemoveHNSNetwork(ctx context.Context, name string) error {
	_, err := callHNS(ctx, l.changes, hnsRemovalLimit, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.Network.RemoveHNSNetwork(ctx, name)
	})
	return err
}

// callHNS runs an HNS call. If the call reaches the limit or ctx ends, callHNS abandons the call and returns an error.
// If too many calls are already running, callHNS returns an error at once.
func callHNS[T any](ctx context.Context, running chan struct{}, limit time.Duration,
	call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errNoHNSAnswer)
	defer cancel()
	return interruptible(ctx, func() (none T, err error) {
		select {
		case running <- struct{}{}:
			defer func() { <-running }()
			return call(ctx)
		default:
			return none, errNoHNSAnswer
		}
	})
}

// interruptible runs a Windows call that doesn't support contexts. If ctx ends first, the call continues in the
// background and its result is dropped. So after an error, don't use data that the call uses.
func interruptible[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	done := make(chan answer, 1)
	go func() {
		value, err := call()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

type limited struct {
	Services
	programs Programs
}

var _ Services = limited{}

func (l limited) Start(ctx context.Context, name string) error {
	found, err := l.Get(ctx, name)
	if err != nil {
		return err
	}
	if found.State == ServiceStopped {
		if _, err = l.killPrograms(ctx, found); err != nil {
			return fmt.Errorf("ending the remaining processes of service %s: %w", name, err)
		}
	}
	limit, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	// A virus scanner may have a new program open for a moment.
	err = UntilClosed(limit.Done(), func() error { return l.Services.Start(limit, name) })
	if err == nil || ctx.Err() != nil {
		return err
	}
	if limit.Err() != nil {
		err = fmt.Errorf("waiting %s: %w: %w", startLimit, ErrStartFailed, err)
	}
	return errors.Join(err, l.killStarting(ctx, name))
}

// killStarting kills the process of a managed service that didn't start in time. If a process has connected to the
// service manager but never reports Running, the service manager doesn't end the process.
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
			if killed, killErr = l.killHung(ctx, name); killErr != nil {
				return errors.Join(err, killErr)
			}
		}
		left, leftErr := l.killPrograms(ctx, service)
		if leftErr != nil {
			return errors.Join(err, fmt.Errorf("ending the remaining processes of service %s: %w", name, leftErr))
		}
		if err == nil || kills == maxKills || !killed && !left {
			return err
		}
	}
}

// stop sends one stop request. If the service or a dependant doesn't end, it returns ErrInUse.
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

// killHung kills the process of the first service, in stop order, that hasn't stopped.
func (l limited) killHung(ctx context.Context, name string) (killed bool, err error) {
	dependants, err := l.Dependants(ctx, name)
	if err != nil {
		return false, err
	}
	for _, service := range append(dependants, name) {
		s, err := l.Get(ctx, service)
		if err != nil || s.State == ServiceStopped || s.PID == 0 {
			continue // the service has stopped or disappeared in the meantime
		}
		if err = l.killProcess(ctx, s); err != nil {
			return false, fmt.Errorf("killing the process of service %s: %w", service, err)
		}
		return true, nil
	}
	return false, nil
}

// killPrograms kills every process that runs a program in a service's command line, with two exceptions. It never kills
// the daemon's own exe, installed or in the RPC directory, because this exe runs the operator's calls. It never kills a
// program outside of C:\k, such as svchost.exe, if we don't manage its service.
func (l limited) killPrograms(ctx context.Context, s Service) (killed bool, err error) {
	for _, exe := range contract.Programs(s.Command) {
		ours := contract.Within(contract.DirK, exe) || contract.IsManaged(s.Description)
		if !ours || strings.EqualFold(exe, contract.PathDaemon) || s.Name == contract.ServiceAttend ||
			s.Name == contract.ServiceCleanup {
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

// Runs returns a function that reports whether a process's exe is in `exes`, a list of absolute paths.
func Runs(exes ...string) func(exe string) bool {
	return func(exe string) bool { return within(exes, exe) }
}

func within(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
