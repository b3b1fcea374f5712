package winostest

import (
	"context"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func environmentCases() []testCase {
	return []testCase{
		{name: "a variable is set and changed and unset", run: environmentSet},
		{name: "names of variables are case insensitive", run: environmentCase},
		{name: "what can be no variable is refused", run: environmentRefused},
	}
}

// variable returns the value of a variable, and the number of variables with this name in any case.
func (m machine) variable(t *testing.T, name string) (value string, count int) {
	t.Helper()
	all, err := m.Host.Environment.All(t.Context())
	noError(t, err)
	for have, v := range all {
		if strings.EqualFold(have, name) {
			value = v
			count++
		}
	}
	return value, count
}

func (m machine) unsetAfterwards(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() { noError(t, m.Host.Environment.Unset(context.WithoutCancel(t.Context()), name)) })
}

func environmentSet(m machine) {
	t := m.t
	name := m.prefix + "_PROXY"
	before, err := m.Host.Environment.All(t.Context())
	noError(t, err)
	noError(t, m.Host.Environment.Unset(t.Context(), name))
	m.unsetAfterwards(t, name)
	for _, value := range []string{"http://proxy.example.com:3128", "a,b;c d=e", "%PATH%", "ünïcode",
		"http://proxy.example.com:3128"} {
		for range 2 {
			noError(t, m.Host.Environment.Set(t.Context(), name, value))
		}
		if have, count := m.variable(t, name); have != value || count != 1 {
			t.Errorf("there are %d variables with this name, the last with the value %q, want one with %q", count, have,
				value)
		}
	}
	for range 2 {
		noError(t, m.Host.Environment.Unset(t.Context(), name))
	}
	after, err := m.Host.Environment.All(t.Context())
	noError(t, err)
	if len(after) != len(before) {
		t.Errorf("there were %d variables, and there are %d now", len(before), len(after))
	}
	for k, v := range before {
		if after[k] != v {
			t.Errorf("variable %s was %q, and is %q", k, v, after[k])
		}
	}
}

func environmentCase(m machine) {
	t := m.t
	name := m.prefix + "_Mixed"
	m.unsetAfterwards(t, name)
	noError(t, m.Host.Environment.Set(t.Context(), name, "one"))
	noError(t, m.Host.Environment.Set(t.Context(), strings.ToUpper(name), "two"))
	if value, count := m.variable(t, name); value != "two" || count != 1 {
		t.Errorf("there are %d variables with this name, the last with the value %q", count, value)
	}
	noError(t, m.Host.Environment.Unset(t.Context(), strings.ToLower(name)))
	if _, count := m.variable(t, name); count != 0 {
		t.Errorf("%d variables with this name were not deleted", count)
	}
}

func environmentRefused(m machine) {
	t := m.t
	for _, variable := range []struct{ name, value string }{{"", "x"}, {"a=b", "x"}, {"nul\x00", "x"},
		{m.prefix, "nul\x00"}} {
		isError(t, "setting "+variable.name, m.Host.Environment.Set(t.Context(), variable.name, variable.value),
			winos.ErrInvalidName)
	}
}
