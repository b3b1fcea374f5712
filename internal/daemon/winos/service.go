package winos

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// serviceState converts a state of SERVICE_STATUS_PROCESS:
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_status_process.
func serviceState(code uint32) ServiceState {
	switch code {
	case 1:
		return ServiceStopped
	case 2, 5: // start pending; or continue pending, which also ends in running
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

// UnansweredError wraps ErrInUse. It means that a service's process didn't answer a request to stop, because the
// process is suspended or no longer handles requests. The service's state is still Running or Paused.
type UnansweredError struct{ Service string }

// Error implements error.
func (e UnansweredError) Error() string {
	return "service " + e.Service + " has not answered a request to stop: " + ErrInUse.Error()
}

// Unwrap returns ErrInUse.
func (e UnansweredError) Unwrap() error { return ErrInUse }

// stopError converts the error of a stop request. It returns an UnansweredError for the code
// ERROR_SERVICE_REQUEST_TIMEOUT, because the service's process didn't answer, and for a timeout. If the process hasn't
// answered an earlier request either, the service manager itself may not answer at all.
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

// unfinished returns the error of a stop that timed out in this state of the service: UnansweredError or ErrInUse.
func unfinished(service string, state ServiceState) error {
	if state == ServiceRunning || state == ServicePaused {
		return UnansweredError{Service: service}
	}
	return ErrInUse
}

// checkServiceName returns an error if the service manager would refuse a name. It also refuses names that would lead
// to a registry key outside the services' key.
func checkServiceName(name string) error {
	const longest = 256
	if name == "" || units(name) > longest || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("service name %q: %w", name, ErrInvalidName)
	}
	return nil
}

// checkServiceConfig returns an error if a configuration is invalid.
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
