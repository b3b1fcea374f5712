package winos

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

const localSystem = "LocalSystem"

// connect opens the service manager and requests only the given rights. mgr.Connect would request all rights.
func connect(access uint32) (*mgr.Mgr, error) {
	h, err := windows.OpenSCManager(nil, nil, access)
	if err != nil {
		return nil, fail(err, "opening the service manager")
	}
	return &mgr.Mgr{Handle: h}, nil
}

// disconnect ignores the error, because closing can't lose data.
func disconnect(scm *mgr.Mgr) { _ = scm.Disconnect() }

// openService opens a service and requests only the given rights. mgr.Mgr.OpenService would request all rights. Windows
// refuses such a request for a protected service, whichever account sends it.
func openService(name string, access uint32) (*mgr.Service, error) {
	scm, err := connect(windows.SC_MANAGER_CONNECT)
	if err != nil {
		return nil, err
	}
	defer disconnect(scm)
	text, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, fail(err, "opening service %s", name)
	}
	h, err := windows.OpenService(scm.Handle, text, access)
	if err != nil {
		return nil, fail(err, "opening service %s", name)
	}
	return &mgr.Service{Name: name, Handle: h}, nil
}

// closeService ignores the error, because closing fails only for an invalid handle.
func closeService(s *mgr.Service) { _ = s.Close() }

// createService creates a service. Call applyConfig afterwards: CreateService may quote the command differently.
func createService(config ServiceConfig) (*mgr.Service, error) {
	scm, err := connect(windows.SC_MANAGER_CONNECT | windows.SC_MANAGER_CREATE_SERVICE)
	if err != nil {
		return nil, err
	}
	defer disconnect(scm)
	command, err := windows.DecomposeCommandLine(config.Command)
	if err != nil {
		return nil, fail(err, "reading the command of service %s", config.Name)
	}
	s, err := scm.CreateService(config.Name, command[0], mgr.Config{StartType: mgr.StartAutomatic,
		ErrorControl: mgr.ErrorNormal, Dependencies: config.Dependencies}, command[1:]...)
	return s, fail(err, "creating service %s", config.Name)
}

func applyConfig(s *mgr.Service, want ServiceConfig) error {
	have, err := s.Config()
	if err != nil {
		return fail(err, "reading the configuration of service %s", s.Name)
	}
	config := have
	config.ServiceType, config.StartType = windows.SERVICE_WIN32_OWN_PROCESS, mgr.StartAutomatic
	config.BinaryPathName, config.Description = want.Command, want.Description
	if !slices.Equal(have.Dependencies, want.Dependencies) {
		config.Dependencies = want.Dependencies
	}
	if !strings.EqualFold(have.ServiceStartName, localSystem) {
		config.ServiceStartName = localSystem
	}
	if reflect.DeepEqual(config, have) {
		return nil
	}
	if len(config.Dependencies) == 0 {
		config.Dependencies = []string{"\x00"} // the empty list; UpdateConfig would ignore nil
	}
	return fail(s.UpdateConfig(config), "configuring service %s", s.Name)
}

// recoveryOf returns the delays before restarts, and the reset time. It stops at the first recovery action that isn't a
// restart, because Windows never performs the actions after that one.
func recoveryOf(s *mgr.Service) (delays []time.Duration, reset time.Duration, err error) {
	actions, err := s.RecoveryActions()
	if err != nil {
		return nil, 0, fail(err, "reading the recovery actions of service %s", s.Name)
	}
	for _, action := range actions {
		if action.Type != mgr.ServiceRestart {
			break
		}
		delays = append(delays, action.Delay)
	}
	seconds, err := s.ResetPeriod()
	return delays, time.Duration(seconds) * time.Second, fail(err, "reading the recovery actions of service %s", s.Name)
}

// applyRecovery sets the delays before restarts, and the reset time. The restarts also apply if a service reports an
// error code at its end, not only if its process crashes.
func applyRecovery(s *mgr.Service, delays []time.Duration, reset time.Duration) error {
	have, err := s.RecoveryActions()
	if err != nil {
		return fail(err, "reading the recovery actions of service %s", s.Name)
	}
	if len(delays) == 0 {
		if len(have) > 0 {
			err = s.ResetRecoveryActions()
		}
		return fail(err, "removing the recovery actions of service %s", s.Name)
	}
	seconds, err := s.ResetPeriod()
	if err != nil {
		return fail(err, "reading the recovery actions of service %s", s.Name)
	}
	var want []mgr.RecoveryAction
	for _, delay := range delays {
		want = append(want, mgr.RecoveryAction{Type: mgr.ServiceRestart, Delay: delay})
	}
	if wantSeconds := uint32(reset.Seconds()); !slices.Equal(have, want) || seconds != wantSeconds {
		if err := s.SetRecoveryActions(want, wantSeconds); err != nil {
			return fail(err, "setting the recovery actions of service %s", s.Name)
		}
	}
	always, err := s.RecoveryActionsOnNonCrashFailures()
	if err == nil && !always {
		err = s.SetRecoveryActionsOnNonCrashFailures(true)
	}
	return fail(err, "setting the recovery flag of service %s", s.Name)
}

// callService opens a service and passes it to the given function. If ctx ends first, callService returns, and the
// function continues in the background. A start blocks until the service's process has connected to the service
// manager. A control request blocks until the service has answered. Each may block for up to 30 s.
func callService(ctx context.Context, name string, access uint32, call func(*mgr.Service) error) error {
	_, err := interruptible(ctx, func() (struct{}, error) {
		s, err := openService(name, access)
		if err != nil {
			return struct{}{}, err
		}
		defer closeService(s)
		return struct{}{}, call(s)
	})
	return err
}

// startService requests the start of a service. If the service manager is too busy for the request, `asked` is false.
func startService(ctx context.Context, name string) (asked bool, err error) {
	err = callService(ctx, name, windows.SERVICE_START, func(s *mgr.Service) error { return s.Start() })
	switch {
	case errors.Is(err, windows.ERROR_SERVICE_DATABASE_LOCKED), errors.Is(err, windows.ERROR_INTERNAL_ERROR):
		return false, nil
	case errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING):
		return true, nil // another program has just started the service
	case errors.Is(err, windows.ERROR_FILE_NOT_FOUND), errors.Is(err, windows.ERROR_PATH_NOT_FOUND):
		err = errors.Join(ErrStartFailed, err) // the exe is missing
	}
	return true, fail(err, "starting service %s", name)
}

func controlService(ctx context.Context, name string, access uint32, control svc.Cmd) error {
	err := callService(ctx, name, access, func(s *mgr.Service) error {
		_, err := s.Control(control)
		return err
	})
	return fail(err, "sending control %d to service %s", control, name)
}

// serviceKey returns the path of a service's registry key. The key's value Environment lists the variables of the
// service's process as NAME=value.
func serviceKey(name string) string { return `SYSTEM\CurrentControlSet\Services\` + name }

const serviceEnvironmentValue = "Environment"

func serviceEnvironment(name string) ([]string, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, serviceKey(name), registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fail(err, "opening the registry key of service %s", name)
	}
	defer closeKey(key)
	lines, _, err := key.GetStringsValue(serviceEnvironmentValue)
	if errors.Is(err, registry.ErrNotExist) || errors.Is(err, registry.ErrUnexpectedType) {
		return nil, nil // the service manager ignores values of another type, too
	}
	return lines, fail(err, "reading the environment of service %s", name)
}

func applyServiceEnvironment(name string, want []string) error {
	have, err := serviceEnvironment(name)
	if err != nil || slices.Equal(have, want) {
		return err
	}
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, serviceKey(name), registry.SET_VALUE)
	if err != nil {
		return fail(err, "opening the registry key of service %s", name)
	}
	defer closeKey(key)
	if len(want) == 0 {
		err = key.DeleteValue(serviceEnvironmentValue)
	} else {
		err = key.SetStringsValue(serviceEnvironmentValue, want)
	}
	return fail(err, "setting the environment of service %s", name)
}

func closeKey(key registry.Key) {
	_ = key.Close() // closing can't lose data, because values are written when they are set
}
