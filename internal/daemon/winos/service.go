package winos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Polling interval while a service starts or stops, and the longest time without progress. Microsoft's
// samples poll at a tenth of the service's wait hint, at most every 10 s. A poll is a cheap local call, and a
// join waits for it.
const (
	quickestLook = 10 * time.Millisecond
	slowestLook  = 250 * time.Millisecond
	longestStall = time.Minute
)

// serviceStates are the states of SERVICE_STATUS_PROCESS:
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_status_process.
func serviceState(code uint32) ServiceState {
	switch code {
	case 1:
		return ServiceStopped
	case 2, 5: // start pending, and continue pending, which also ends in running
		return ServiceStartPending
	case 3:
		return ServiceStopPending
	case 4:
		return ServiceRunning
	case 6, 7: // pause pending and paused
		return ServicePaused
	}
	return ServiceState(fmt.Sprintf("Unknown(%d)", code))
}

// UnansweredError is an ErrInUse: a service's process didn't answer a request to stop, because it is
// suspended or no longer handles requests. Its service remains Running.
type UnansweredError struct{ Service string }

// Error implements error.
func (e UnansweredError) Error() string {
	return "service " + e.Service + " has not answered a request to stop: " + ErrInUse.Error()
}

// Unwrap returns ErrInUse.
func (e UnansweredError) Unwrap() error { return ErrInUse }

// stopError classifies an error of a stop request. ERROR_SERVICE_REQUEST_TIMEOUT also means that a start
// failed. For a stop it means that the service's process doesn't answer. If an earlier request wasn't
// answered either, the service manager may not answer at all.
func stopError(service string, code uint32, err error) error {
	const requestTimeout = 1053
	switch {
	case code == requestTimeout:
		return UnansweredError{Service: service}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", UnansweredError{Service: service}, err)
	}
	return err
}

// unfinished returns the ErrInUse of a stop that timed out, by the service's state at that time.
func unfinished(service string, state ServiceState) error {
	if state == ServiceRunning || state == ServicePaused {
		return UnansweredError{Service: service}
	}
	return ErrInUse
}

// checkServiceName reports whether the service manager accepts a name. It also prevents names that point
// outside of the services' registry key.
func checkServiceName(name string) error {
	const longest = 256
	if name == "" || units(name) > longest || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("service name %q: %w", name, ErrInvalidName)
	}
	return nil
}

// checkServiceConfig reports whether a configuration can be applied.
func checkServiceConfig(config ServiceConfig) error {
	if err := checkServiceName(config.Name); err != nil {
		return err
	}
	if strings.TrimSpace(config.Command) == "" || strings.ContainsRune(config.Command, 0) {
		return fmt.Errorf("command of service %s: %w", config.Name, ErrInvalidName)
	}
	if strings.ContainsRune(config.Description, 0) {
		return fmt.Errorf("description of service %s: %w", config.Name, ErrInvalidName)
	}
	for _, dependency := range config.Dependencies {
		if err := checkServiceName(dependency); err != nil {
			return fmt.Errorf("dependency of service %s: %w", config.Name, err)
		}
	}
	return nil
}

// pendingWait decides when to poll a starting or stopping service again, and when it has made no progress for
// too long.
type pendingWait struct {
	seen       bool
	checkpoint uint32
	since      time.Time // when the checkpoint last changed
}

// next evaluates the service's present checkpoint, and its hint for the time until the next checkpoint.
func (p *pendingWait) next(now time.Time, checkpoint uint32, hint time.Duration) (wait time.Duration, stalled bool) {
	if !p.seen || checkpoint != p.checkpoint {
		p.seen, p.checkpoint, p.since = true, checkpoint, now
	}
	// A service may take twice as long as its hint.
	stalled = now.Sub(p.since) > max(2*hint, longestStall)
	return min(max(hint/10, quickestLook), slowestLook), stalled
}

// dependants lists the services that need name, directly or through other services, in stop order: each service
// comes before the services that it needs. needs maps each active service to its dependencies. Names are compared
// without case. A cycle is visited once.
func dependants(needs map[string][]string, name string) []string {
	neededBy := map[string][]string{}
	for service, dependencies := range needs {
		for _, dependency := range dependencies {
			key := strings.ToLower(dependency)
			neededBy[key] = append(neededBy[key], service)
		}
	}
	var order []string
	seen := map[string]bool{strings.ToLower(name): true}
	var walk func(string)
	walk = func(name string) {
		direct := neededBy[strings.ToLower(name)]
		slices.Sort(direct) // for a stable order
		for _, service := range direct {
			if key := strings.ToLower(service); !seen[key] {
				seen[key] = true
				walk(service)
				order = append(order, service)
			}
		}
	}
	walk(name)
	return order
}
