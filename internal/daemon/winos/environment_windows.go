package winos

import (
	"context"
	"errors"

	"golang.org/x/sys/windows/registry"
)

// environmentKey is the registry key of the system's environment variables:
// https://learn.microsoft.com/en-us/windows/win32/procthread/environment-variables.
const environmentKey = `SYSTEM\CurrentControlSet\Control\Session Manager\Environment`

type environment struct{}

var _ Environment = environment{}

// All returns the stored values, without expanding %NAME%.
func (environment) All(ctx context.Context) (map[string]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, environmentKey, registry.QUERY_VALUE)
	if err != nil {
		return nil, fail(err, "opening the system environment")
	}
	defer closeKey(key)
	names, err := key.ReadValueNames(0)
	if err != nil {
		return nil, fail(err, "listing the system environment")
	}
	all := map[string]string{}
	for _, name := range names {
		value, _, err := key.GetStringValue(name)
		if errors.Is(err, registry.ErrUnexpectedType) || errors.Is(err, registry.ErrNotExist) {
			continue // Windows ignores this value as well, or it was just deleted
		}
		if err != nil {
			return nil, fail(err, "reading system variable %s", name)
		}
		all[name] = value
	}
	return all, nil
}

// Set keeps the type of an existing value, because Windows expands %NAME% only in a REG_EXPAND_SZ. It creates a new
// value as a REG_SZ, so that Windows doesn't expand percent signs in a proxy's URL.
func (environment) Set(ctx context.Context, name, value string) error {
	if err := errors.Join(ctx.Err(), checkVariable(name, value)); err != nil {
		return err
	}
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, environmentKey, registry.QUERY_VALUE|registry.SET_VALUE)
	if err != nil {
		return fail(err, "opening the system environment")
	}
	defer closeKey(key)
	old, kind, err := key.GetStringValue(name)
	switch {
	case err == nil && old == value:
		return nil
	case err == nil && kind == registry.EXPAND_SZ:
		err = key.SetExpandStringValue(name, value)
	default:
		err = key.SetStringValue(name, value)
	}
	return fail(err, "setting system variable %s", name)
}

func (environment) Unset(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkVariable(name, "")); err != nil {
		return err
	}
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, environmentKey, registry.SET_VALUE)
	if err != nil {
		return fail(err, "opening the system environment")
	}
	defer closeKey(key)
	err = key.DeleteValue(name)
	if errors.Is(err, registry.ErrNotExist) {
		return nil
	}
	return fail(err, "removing system variable %s", name)
}
