package winos_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Arguments of the test program: as a service it answers a request to stop with "stopping", for
// ever; or it is no service, and runs on.
const (
	hang = "hang"
	stay = "stay"
)

// impatient waits only a moment for a service to stop while its program runs. It simulates the passing of a minute.
// It does this once for each process: afterwards the process is killed, and the service manager notices this later.
type impatient struct {
	winos.Services
	programs winos.Programs
	exe      string
	waited   map[uint32]bool
}

// Stop is winos.Services.
func (s impatient) Stop(ctx context.Context, name string) error {
	running, err := s.programs.Processes(ctx, s.exe)
	if err != nil {
		return err
	}
	isKilled := true
	for _, process := range running {
		isKilled = isKilled && s.waited[process.PID]
		s.waited[process.PID] = true
	}
	if isKilled {
		return s.Services.Stop(ctx, name)
	}
	limit, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	err = s.Services.Stop(limit, name)
	if err != nil && limit.Err() != nil { // as a busy service manager takes longer to answer than that
		return fmt.Errorf("%w: %w", winos.ErrInUse, err)
	}
	return err
}

// Real service manager, real processes: what TestA42_AServiceWhoseProcessGoesOnIsEndedAfterItsTime
// shows with the simulator's clock.
func TestA42_OnWindowsAServiceThatDoesNotEndIsEndedAndStartsAnew(t *testing.T) {
	for name, test := range map[string]struct {
		service, arguments string
		killed             bool
	}{
		"it says that it has stopped, and goes on":   {service: "lingers", arguments: " linger=1h"},
		"it never says that it has stopped":          {service: "hangs", arguments: " " + hang},
		"it was killed, and what it started goes on": {service: "killed", killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			host, exe := winos.New(), newDir(t)+`\endless.exe`
			installService(t, exe)
			if !test.killed { // which ends by itself
				host.Services = impatient{host.Services, host.Programs, exe, map[uint32]bool{}}
			}
			services := winos.WithTimeouts(host).Services
			config := winos.ServiceConfig{Name: "wmcotest-" + test.service,
				Description: contract.ManagedDescription, Command: exe + test.arguments}
			must(t, services.Apply(t.Context(), config))
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				must(t, errors.Join(services.Stop(ctx, config.Name), services.Delete(ctx, config.Name)))
			})
			one := func() uint32 {
				t.Helper()
				must(t, services.Start(t.Context(), config.Name))
				running, err := host.Programs.Processes(t.Context(), exe)
				must(t, err)
				if len(running) != 1 {
					t.Fatalf("%d of it run at once: %+v", len(running), running)
				}
				return running[0].PID
			}
			first := one()
			if test.killed {
				must(t, host.Programs.Kill(t.Context(), first, winos.Runs(exe)))
				leaveBehind(t, exe)
			} else {
				must(t, services.Stop(t.Context(), config.Name))
				if left, err := host.Programs.Processes(t.Context(), exe); err != nil || len(left) > 0 {
					t.Errorf("%+v still run after the stop, %v", left, err)
				}
			}
			if second := one(); second == first {
				t.Error("the one from before still runs")
			}
			must(t, services.Stop(t.Context(), config.Name))
			must(t, host.Files.Remove(exe)) // nothing holds it
		})
	}
}

// leaveBehind runs the program as what a service's wrapper started, which outlives the wrapper.
func leaveBehind(t *testing.T, exe string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), exe, stay)
	must(t, child.Start())
	t.Cleanup(func() { _ = child.Wait() })
}
