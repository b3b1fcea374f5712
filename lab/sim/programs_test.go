package sim_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestAProgramIsRunAndItsExitCodeKnown(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{Programs: map[string]sim.Program{"tool.exe": func(ctx context.Context,
		p *sim.Process) int {
		switch {
		case slices.Equal(p.Args[1:], []string{"version"}):
			return 0
		case slices.Equal(p.Args[1:], []string{"wait"}):
			<-ctx.Done()
		}
		return 7
	}}})
	const exe = `C:\tool.exe`
	noError(t, winos.WriteFile(m.Host().Files, exe, strings.NewReader("MZ"), winos.AccessInherit))
	for args, want := range map[string]int{"version": 0, "nonsense": 7} {
		if code, err := m.Host().Programs.Run(t.Context(), exe, args); err != nil || code != want {
			t.Errorf("%s: %d, %v; want %d", args, code, err, want)
		}
	}
	if _, err := m.Host().Programs.Run(t.Context(), `C:\nothing.exe`); !errors.Is(err, winos.ErrStartFailed) {
		t.Errorf("running a missing program: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := m.Host().Programs.Run(ctx, exe, "wait"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("running a program that does not end: %v", err)
	}
	// The process has been killed, so its exe can be removed.
	noError(t, m.Host().Files.Remove(exe))
}

func TestSignsOfARebootGoWithTheReboot(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{})
	m.SetRebootSigns([]string{winos.SignUpdate, winos.SignServicing}, `C:\a.dll`)
	facts, err := m.Host().System.Facts(t.Context())
	if err != nil ||
		!slices.Equal(facts.RebootSigns, []string{winos.SignServicing, winos.SignUpdate}) ||
		!slices.Equal(facts.ReplacedAtBoot, []string{`C:\a.dll`}) {
		t.Errorf("before the boot, the facts are %+v, %v", facts, err)
	}
	m.PowerCut()
	m.PowerOn()
	facts, err = m.Host().System.Facts(t.Context())
	if err != nil || len(facts.RebootSigns)+len(facts.ReplacedAtBoot) > 0 {
		t.Errorf("after the boot, the facts are %+v, %v", facts, err)
	}
}
