package winos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// How often the service manager is asked while a service starts or stops, and how long one may show
// no progress at all. Microsoft's samples ask every tenth of the hint that the service gives, but
// at least every 10 s; asking is cheap (a local call), and a join waits for it.
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
	case 2, 5: // start pending; continue pending, on its way to running as well
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

// UnansweredError is an ErrInUse: the process of a service has not answered a request to stop, as one that is
// suspended or has stopped taking requests. Its service goes on as Running.
type UnansweredError struct{ Service string }

// Error is error.
func (e UnansweredError) Error() string {
	return "service " + e.Service + " has not answered a request to stop: " + ErrInUse.Error()
}

// Unwrap gives ErrInUse.
func (e UnansweredError) Unwrap() error { return ErrInUse }

// stopError is what an error of a request to stop means. ERROR_SERVICE_REQUEST_TIMEOUT is the same code as of
// a start that failed; here it says that the service's process takes no request. The service manager may
// say nothing at all where an earlier request has not been taken either.
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

// unfinished is the ErrInUse of a stop whose time is over, by the state of the service then.
func unfinished(service string, state ServiceState) error {
	if state == ServiceRunning || state == ServicePaused {
		return UnansweredError{Service: service}
	}
	return ErrInUse
}

// checkServiceName says whether the service manager takes a name. It also keeps names from leaving
// the services' key of the registry.
func checkServiceName(name string) error {
	const longest = 256
	if name == "" || units(name) > longest || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("service name %q: %w", name, ErrInvalidName)
	}
	return nil
}

// checkServiceConfig says whether a configuration can be applied.
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

// pendingWait decides when to look again at a service that is starting or stopping, and when it has
// stood still for too long.
type pendingWait struct {
	seen       bool
	checkpoint uint32
	since      time.Time // when the checkpoint last changed
}

// next takes what the service manager says now: the service's checkpoint and the time it asks for
// until the next one.
func (p *pendingWait) next(now time.Time, checkpoint uint32, hint time.Duration) (wait time.Duration, stalled bool) {
	if !p.seen || checkpoint != p.checkpoint {
		p.seen, p.checkpoint, p.since = true, checkpoint, now
	}
	// A service may be late: twice what it asked for.
	stalled = now.Sub(p.since) > max(2*hint, longestStall)
	return min(max(hint/10, quickestLook), slowestLook), stalled
}

// dependants lists the services that need name, directly or through others, each before those that
// it needs: the order in which to stop them. needs says what each service that may have to be
// stopped depends on. Names are compared without case; a circle is walked once.
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
		slices.Sort(direct) // the same order every time
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
