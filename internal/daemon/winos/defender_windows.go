package winos

import (
	"context"
	"errors"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// Group policy "Process Exclusions" of Windows Defender: a switch, and a key with one value "0" per exe,
// named by the exe's path. Source:
// https://learn.microsoft.com/en-us/windows/client-management/mdm/policy-csp-defender#excludedprocesses.
const (
	exclusionsKey    = `SOFTWARE\Policies\Microsoft\Windows Defender\Exclusions`
	exclusionsSwitch = "Exclusions_Processes"
	processesKey     = exclusionsKey + `\Processes`
	noParameter      = "0"
	defenderService  = "WinDefend"
)

// ExcludeFromDefender writes the local policy, which Defender watches. The alternatives are PowerShell and
// WMI.
func (system) ExcludeFromDefender(ctx context.Context, exe string) error {
	if err := errors.Join(ctx.Err(), CheckPath(exe)); err != nil {
		return err
	}
	h, err := openService(defenderService, windows.SERVICE_QUERY_STATUS)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	// If the error is "access denied", Defender exists, so continue.
	if err == nil {
		closeService(h)
	} else if !errors.Is(err, ErrDenied) {
		return err
	}
	return errors.Join(
		setPolicy(processesKey, func(key registry.Key) error {
			if old, _, err := key.GetStringValue(exe); err == nil && old == noParameter {
				return nil
			}
			return key.SetStringValue(exe, noParameter)
		}),
		setPolicy(exclusionsKey, func(key registry.Key) error {
			if old, _, err := key.GetIntegerValue(exclusionsSwitch); err == nil && old == 1 {
				return nil
			}
			return key.SetDWordValue(exclusionsSwitch, 1)
		}),
	)
}

func setPolicy(path string, set func(registry.Key) error) error {
	key, _, err := registry.CreateKey(registry.LOCAL_MACHINE, path,
		registry.QUERY_VALUE|registry.SET_VALUE|registry.WOW64_64KEY)
	if err != nil {
		return fail(err, "opening the policy of Windows Defender")
	}
	defer closeKey(key)
	return fail(set(key), "setting the policy of Windows Defender")
}
