package sim_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// machine creates a machine. The machine is closed when the test ends.
func machine(t *testing.T, options sim.Options) *sim.Machine {
	t.Helper()
	m, err := sim.New(options)
	noError(t, err)
	t.Cleanup(func() { noError(t, m.Close()) })
	return m
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want %q", err, want)
	}
}

func writeExe(t *testing.T, m *sim.Machine, path string) {
	t.Helper()
	write(t, m, path, "MZ and the rest of a program")
}

func write(t *testing.T, m *sim.Machine, path, content string) {
	t.Helper()
	noError(t, m.Host().Files.MkdirAll(path[:strings.LastIndex(path, `\`)], winos.AccessInherit))
	noError(t, winos.WriteFile(m.Host().Files, path, strings.NewReader(content), winos.AccessInherit))
}

// reboot reboots a machine through winos and waits until the machine is up.
func reboot(t *testing.T, m *sim.Machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	before, err := m.WaitBoot(ctx)
	noError(t, err)
	noError(t, m.Host().System.Reboot(ctx, "a test"))
	select {
	case <-before.Down:
	case <-ctx.Done():
		t.Fatal("the machine does not go down")
	}
	after, err := m.WaitBoot(ctx)
	noError(t, err)
	if after.ID == before.ID {
		t.Error("the boot ID did not change")
	}
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func factsOf(t *testing.T, m *sim.Machine) winos.Facts {
	t.Helper()
	facts, err := m.Host().System.Facts(t.Context())
	noError(t, err)
	return facts
}
