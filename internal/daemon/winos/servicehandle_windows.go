package winos

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// localSystem is the account that our services run as.
const localSystem = "LocalSystem"

// connect opens the service manager with the required rights only. mgr.Connect requests all rights.
func connect(access uint32) (*mgr.Mgr, error) {
	h, err := windows.OpenSCManager(nil, nil, access)
	if err != nil {
		return nil, fail(err, "opening the service manager")
	}
	return &mgr.Mgr{Handle: h}, nil
}

func disconnect(scm *mgr.Mgr) {
	_ = scm.Disconnect() // nothing was written through it that closing could lose
}

// serviceHandle is one open service.
type serviceHandle struct {
	name   string
	handle windows.Handle
}

func openService(name string, access uint32) (serviceHandle, error) {
	scm, err := connect(windows.SC_MANAGER_CONNECT)
	if err != nil {
		return serviceHandle{}, err
	}
	defer disconnect(scm)
	text, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return serviceHandle{}, fail(err, "opening service %s", name)
	}
	h, err := windows.OpenService(scm.Handle, text, access)
	return serviceHandle{name: name, handle: h}, fail(err, "opening service %s", name)
}

func createService(config ServiceConfig, access uint32) (serviceHandle, error) {
	scm, err := connect(windows.SC_MANAGER_CONNECT | windows.SC_MANAGER_CREATE_SERVICE)
	if err != nil {
		return serviceHandle{}, err
	}
	defer disconnect(scm)
	name, err := windows.UTF16PtrFromString(config.Name)
	if err != nil {
		return serviceHandle{}, fail(err, "creating service %s", config.Name)
	}
	command, err := windows.UTF16PtrFromString(config.Command)
	if err != nil {
		return serviceHandle{}, fail(err, "creating service %s", config.Name)
	}
	// Without a name, the account is LocalSystem.
	h, err := windows.CreateService(scm.Handle, name, name, access, windows.SERVICE_WIN32_OWN_PROCESS,
		windows.SERVICE_AUTO_START,
		windows.SERVICE_ERROR_NORMAL, command, nil, nil, &encodeStrings(config.Dependencies)[0], nil, nil)
	return serviceHandle{name: config.Name, handle: h}, fail(err, "creating service %s", config.Name)
}

func (h serviceHandle) close() {
	_ = windows.CloseServiceHandle(h.handle) // fails only for an invalid handle
}

// serviceStatus is svc.Status with the wait hint as a duration.
type serviceStatus struct {
	svc.Status
	hint time.Duration
	// shared reports that other services run in the same process.
	shared bool
}

// status calls QueryServiceStatusEx itself, because mgr.Service.Query omits checkpoint and wait hint.
func (h serviceHandle) status() (serviceStatus, error) {
	var raw windows.SERVICE_STATUS_PROCESS
	var needed uint32
	err := windows.QueryServiceStatusEx(h.handle, windows.SC_STATUS_PROCESS_INFO, (*byte)(unsafe.Pointer(&raw)),
		uint32(unsafe.Sizeof(raw)), &needed)
	if err != nil {
		return serviceStatus{}, fail(err, "querying service %s", h.name)
	}
	status := serviceStatus{
		Status: svc.Status{
			State:                   svc.State(raw.CurrentState),
			CheckPoint:              raw.CheckPoint,
			ProcessId:               raw.ProcessId,
			Win32ExitCode:           raw.Win32ExitCode,
			ServiceSpecificExitCode: raw.ServiceSpecificExitCode,
		},
		hint:   time.Duration(raw.WaitHint) * time.Millisecond,
		shared: raw.ServiceType&windows.SERVICE_WIN32_SHARE_PROCESS != 0,
	}
	if status.State != svc.Stopped && processGone(status.ProcessId) {
		// Windows notices the end of a process at once. Wine still reports the service as running.
		status.State, status.ProcessId = svc.Stopped, 0
	}
	return status, nil
}

// serviceConfig is the part of QUERY_SERVICE_CONFIG that we set.
type serviceConfig struct {
	kind, start  uint32
	command      string
	dependencies []string
	account      string
}

// config calls QueryServiceConfig itself, because mgr.Service.Config also reads levels of QueryServiceConfig2
// that Wine lacks.
func (h serviceHandle) config() (serviceConfig, error) {
	size := uint32(1024)
	for {
		buffer := make([]byte, size)
		raw := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buffer[0]))
		err := windows.QueryServiceConfig(h.handle, raw, uint32(len(buffer)), &size)
		if errors.Is(err, windows.ERROR_INSUFFICIENT_BUFFER) && size > uint32(len(buffer)) {
			continue
		}
		if err != nil {
			return serviceConfig{}, fail(err, "reading the configuration of service %s", h.name)
		}
		found := serviceConfig{
			kind:         raw.ServiceType,
			start:        raw.StartType,
			command:      windows.UTF16PtrToString(raw.BinaryPathName),
			dependencies: decodeStrings(tail(buffer, raw.Dependencies)),
			account:      windows.UTF16PtrToString(raw.ServiceStartName),
		}
		if len(found.dependencies) == 0 {
			// Wine returns none, although it stores them where Windows does.
			found.dependencies, err = serviceStrings(h.name, "DependOnService")
		}
		return found, err
	}
}

// tail returns the rest of a buffer from p, which points into it.
func tail(buffer []byte, p *uint16) []uint16 {
	if p == nil {
		return nil
	}
	offset := uintptr(unsafe.Pointer(p)) - uintptr(unsafe.Pointer(&buffer[0]))
	if offset >= uintptr(len(buffer)) {
		return nil
	}
	return unsafe.Slice(p, (uintptr(len(buffer))-offset)/unsafe.Sizeof(*p))
}

// config2 reads one level of QueryServiceConfig2. Wine lacks most levels (ERROR_INVALID_LEVEL). Windows has
// all.
func (h serviceHandle) config2(level uint32) ([]byte, error) {
	size := uint32(1024)
	for {
		buffer := make([]byte, size)
		err := windows.QueryServiceConfig2(h.handle, level, &buffer[0], uint32(len(buffer)), &size)
		if errors.Is(err, windows.ERROR_INSUFFICIENT_BUFFER) && size > uint32(len(buffer)) {
			continue
		}
		return buffer, fail(err, "reading the configuration of service %s, level %d", h.name, level)
	}
}

func (h serviceHandle) description() (string, error) {
	buffer, err := h.config2(windows.SERVICE_CONFIG_DESCRIPTION)
	if err != nil {
		return "", err
	}
	raw := (*windows.SERVICE_DESCRIPTION)(unsafe.Pointer(&buffer[0]))
	if raw.Description == nil {
		return "", nil
	}
	return windows.UTF16PtrToString(raw.Description), nil
}

// recovery asks the service manager. If it can't answer, recovery reads the registry: see keepRecovery.
func (h serviceHandle) recovery() (recovery, error) {
	buffer, err := h.config2(windows.SERVICE_CONFIG_FAILURE_ACTIONS)
	if errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		return h.keptRecovery()
	}
	if err != nil {
		return recovery{}, err
	}
	raw := (*windows.SERVICE_FAILURE_ACTIONS)(unsafe.Pointer(&buffer[0]))
	found := recovery{Reset: raw.ResetPeriod}
	if raw.Actions == nil {
		return found, nil
	}
	for _, action := range unsafe.Slice(raw.Actions, raw.ActionsCount) {
		found.Actions = append(found.Actions, recoveryAction{Kind: action.Type, Delay: action.Delay})
	}
	return found, nil
}

func (h serviceHandle) applyConfig(want ServiceConfig) error {
	have, err := h.config()
	if err != nil {
		return err
	}
	sameAccount := have.account == "" || strings.EqualFold(have.account, localSystem)
	if have.kind == windows.SERVICE_WIN32_OWN_PROCESS && have.start == windows.SERVICE_AUTO_START &&
		have.command == want.Command &&
		slices.Equal(have.dependencies, want.Dependencies) && sameAccount {
		return nil
	}
	command, err := windows.UTF16PtrFromString(want.Command)
	if err != nil {
		return fail(err, "configuring service %s", h.name)
	}
	var account, password *uint16 // nil keeps the present values
	if !sameAccount {
		account, password = windows.StringToUTF16Ptr(localSystem), windows.StringToUTF16Ptr("")
	}
	err = windows.ChangeServiceConfig(h.handle, windows.SERVICE_WIN32_OWN_PROCESS, windows.SERVICE_AUTO_START,
		windows.SERVICE_NO_CHANGE, command,
		nil, nil, &encodeStrings(want.Dependencies)[0], account, password, nil)
	return fail(err, "configuring service %s", h.name)
}

func (h serviceHandle) applyDescription(want string) error {
	have, err := h.description()
	if err != nil || have == want {
		return err
	}
	text, err := windows.UTF16PtrFromString(want)
	if err != nil {
		return fail(err, "describing service %s", h.name)
	}
	raw := windows.SERVICE_DESCRIPTION{Description: text} // an empty text deletes the description
	err = windows.ChangeServiceConfig2(h.handle, windows.SERVICE_CONFIG_DESCRIPTION, (*byte)(unsafe.Pointer(&raw)))
	return fail(err, "describing service %s", h.name)
}

func (h serviceHandle) applyRecovery(want recovery) error {
	have, err := h.recovery()
	if err != nil || have.Reset == want.Reset && slices.Equal(have.Actions, want.Actions) {
		return err
	}
	// An empty list with a non-nil pointer deletes the actions. A nil pointer would keep them.
	actions := make([]windows.SC_ACTION, max(1, len(want.Actions)))
	for i, action := range want.Actions {
		actions[i] = windows.SC_ACTION{Type: action.Kind, Delay: action.Delay}
	}
	raw := windows.SERVICE_FAILURE_ACTIONS{ResetPeriod: want.Reset, ActionsCount: uint32(len(want.Actions)),
		Actions: &actions[0]}
	err = windows.ChangeServiceConfig2(h.handle, windows.SERVICE_CONFIG_FAILURE_ACTIONS, (*byte)(unsafe.Pointer(&raw)))
	if err != nil {
		return fail(err, "setting the recovery actions of service %s", h.name)
	}
	if _, err := h.config2(windows.SERVICE_CONFIG_FAILURE_ACTIONS); errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		return h.keepRecovery(want)
	}
	return nil
}

const failureActionsValue = "FailureActions"

// keepRecovery stores the recovery actions in the registry, where Windows' service manager keeps them. Wine's
// service manager accepts them but neither stores nor returns them, so a caller that compares would set them
// again and again.
func (h serviceHandle) keepRecovery(want recovery) error {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, serviceKey(h.name), registry.SET_VALUE)
	if err != nil {
		return fail(err, "opening the registry key of service %s", h.name)
	}
	defer closeKey(key)
	return fail(key.SetBinaryValue(failureActionsValue, want.bytes()), "keeping the recovery actions of service %s",
		h.name)
}

func (h serviceHandle) keptRecovery() (recovery, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, serviceKey(h.name), registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return recovery{}, nil // Wine's own driver hosts have none
	}
	if err != nil {
		return recovery{}, fail(err, "opening the registry key of service %s", h.name)
	}
	defer closeKey(key)
	raw, _, err := key.GetBinaryValue(failureActionsValue)
	if errors.Is(err, registry.ErrNotExist) || errors.Is(err, registry.ErrUnexpectedType) {
		return recovery{}, nil
	}
	return recoveryOf(raw), fail(err, "reading the recovery actions of service %s", h.name)
}

// applyFailureFlag extends the recovery actions from crashes to services that report their own end with an
// error code (FailureActionsOnNonCrashFailures). Wine lacks this level, so there it does nothing.
func (h serviceHandle) applyFailureFlag(want bool) error {
	var raw windows.SERVICE_FAILURE_ACTIONS_FLAG
	if want {
		raw.FailureActionsOnNonCrashFailures = 1
	}
	buffer, err := h.config2(windows.SERVICE_CONFIG_FAILURE_ACTIONS_FLAG)
	if errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		return nil
	}
	if err != nil {
		return err
	}
	have := (*windows.SERVICE_FAILURE_ACTIONS_FLAG)(unsafe.Pointer(&buffer[0]))
	if (have.FailureActionsOnNonCrashFailures != 0) == want {
		return nil
	}
	err = windows.ChangeServiceConfig2(h.handle, windows.SERVICE_CONFIG_FAILURE_ACTIONS_FLAG,
		(*byte)(unsafe.Pointer(&raw)))
	return fail(err, "setting the recovery flag of service %s", h.name)
}

// startService blocks until the service's process has connected to the service manager, for up to 30 s. It
// uses its own handle, so that the end of ctx ends the wait. asked is false if the service manager is too
// busy for the request.
func startService(ctx context.Context, name string) (asked bool, err error) {
	_, err = interruptible(ctx, func() (serviceHandle, error) {
		h, err := openService(name, windows.SERVICE_START)
		if err != nil {
			return h, err
		}
		defer h.close()
		return h, windows.StartService(h.handle, 0, nil)
	})
	switch {
	case errors.Is(err, windows.ERROR_SERVICE_DATABASE_LOCKED), errors.Is(err, windows.ERROR_INTERNAL_ERROR):
		// The service manager is busy or has an internal problem. The caller retries until its time is over.
		return false, nil
	case errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING):
		return true, nil // someone else started it
	case errors.Is(err, windows.ERROR_FILE_NOT_FOUND), errors.Is(err, windows.ERROR_PATH_NOT_FOUND):
		err = errors.Join(ErrStartFailed, err) // the exe is missing
	}
	return true, fail(err, "starting service %s", name)
}

// controlService blocks until the service has answered, for up to 30 s.
func controlService(ctx context.Context, name string, control svc.Cmd) error {
	access := uint32(windows.SERVICE_STOP)
	if control == svc.Continue {
		access = windows.SERVICE_PAUSE_CONTINUE
	}
	_, err := interruptible(ctx, func() (status windows.SERVICE_STATUS, err error) {
		h, err := openService(name, access)
		if err != nil {
			return status, err
		}
		defer h.close()
		err = windows.ControlService(h.handle, uint32(control), &status)
		return status, err
	})
	return fail(err, "sending control %d to service %s", control, name)
}

// serviceKey is the service's registry key. Its value Environment is a list of NAME=value for the service's
// process.
func serviceKey(name string) string { return `SYSTEM\CurrentControlSet\Services\` + name }

const serviceEnvironmentValue = "Environment"

func serviceEnvironment(name string) ([]string, error) {
	return serviceStrings(name, serviceEnvironmentValue)
}

// serviceStrings reads a list from a service's registry key.
func serviceStrings(name, value string) ([]string, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, serviceKey(name), registry.QUERY_VALUE)
	if errors.Is(err, registry.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fail(err, "opening the registry key of service %s", name)
	}
	defer closeKey(key)
	lines, _, err := key.GetStringsValue(value)
	if errors.Is(err, registry.ErrNotExist) || errors.Is(err, registry.ErrUnexpectedType) {
		return nil, nil // the service manager also ignores values of other types
	}
	return lines, fail(err, "reading %s of service %s", value, name)
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
	_ = key.Close() // values are written when they are set
}
