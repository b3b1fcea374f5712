package winos

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// stopError classifies an error of a stop request. For a start, ERROR_SERVICE_REQUEST_TIMEOUT means that
// the start failed. For a stop, it means that the service's process doesn't answer. If an earlier request wasn't
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
