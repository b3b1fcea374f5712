package winos

import (
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

// checkServiceName returns an error for a name that the service manager would refuse, and for a name that would lead to
// a registry key outside the services' key.
func checkServiceName(name string) error {
	const longest = 256
	if name == "" || units(name) > longest || strings.ContainsAny(name, "/\\\x00") {
		return fmt.Errorf("service name %q: %w", name, ErrInvalidName)
	}
	return nil
}

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
