package winos

import (
	"context"
	"errors"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// Group policy "Process Exclusions" of Windows Defender: a switch, and beside it a key with one
// value for each exe, named by its path, "0". Source:
// https://learn.microsoft.com/en-us/windows/client-management/mdm/policy-csp-defender#excludedprocesses.
const (
	exclusionsKey    = `SOFTWARE\Policies\Microsoft\Windows Defender\Exclusions`
	exclusionsSwitch = "Exclusions_Processes"
	processesKey     = exclusionsKey + `\Processes`
	noParameter      = "0"
	defenderService  = "WinDefend"
)

// ExcludeFromDefender writes the local policy, which Defender watches; the other ways in are
// PowerShell and WMI.
func (system) ExcludeFromDefender(ctx context.Context, exe string) error {
	if err := errors.Join(ctx.Err(), CheckPath(exe)); err != nil {
		return err
	}
	h, err := openService(defenderService, windows.SERVICE_QUERY_STATUS)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	// A service that we may not even look at is there.
	if err == nil {
		h.close()
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
