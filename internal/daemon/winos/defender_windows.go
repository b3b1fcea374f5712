package winos

import (
	"context"
	"errors"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// Windows Defender's group policy "Process Exclusions" consists of a value that enables the policy, and a key. For each
// excluded exe, this key has a value with the exe's path as name and "0" as content. Source:
// https://learn.microsoft.com/en-us/windows/client-management/mdm/policy-csp-defender#excludedprocesses.
const (
	exclusionsKey    = `SOFTWARE\Policies\Microsoft\Windows Defender\Exclusions`
	exclusionsSwitch = "Exclusions_Processes"
	processesKey     = exclusionsKey + `\Processes`
	noParameter      = "0"
	defenderService  = "WinDefend"
)

// ExcludeFromDefender implements System. It writes the local policy in the registry, and Defender notices the change.
// The alternatives would need PowerShell or WMI.
func (system) ExcludeFromDefender(ctx context.Context, exe string) error {
	if err := errors.Join(ctx.Err(), CheckPath(exe)); err != nil {
		return err
	}
	h, err := openService(defenderService, windows.SERVICE_QUERY_STATUS)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	// "Access denied" means that Defender exists, so continue.
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
