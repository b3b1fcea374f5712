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

// hang and stay are arguments of the test program. As a service, the program answers a request to stop with "stopping"
// forever. Otherwise it just keeps running.
const (
	hang = "hang"
	stay = "stay"
)

// impatient simulates that the time limit of a stop is over. While the service's program runs, the first call of Stop
// waits only a moment for the program's end. After that, the process has been killed. Then Stop waits normally, because
// the service manager notices the kill only later. This happens once for each process.
type impatient struct {
	winos.Services
	programs winos.Programs
	exe      string
	waited   map[uint32]bool
}

// Stop implements winos.Services.
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
	if err != nil && limit.Err() != nil { // a busy service manager takes longer to answer
		return fmt.Errorf("%w: %w", winos.ErrInUse, err)
	}
	return err
}

// This test uses a real service manager and real processes. TestA42_AServiceWhoseProcessGoesOnIsEndedAfterItsTime
// tests the same with the simulator's clock.
func TestA42_OnWindowsAServiceThatDoesNotEndIsEndedAndStartsAnew(t *testing.T) {
	for name, test := range map[string]struct {
		service, arguments string
		killed             bool
	}{
		"the service reports that it has stopped, but its process continues": {service: "lingers", arguments: " linger=1h"},
		"the service never reports that it has stopped":                      {service: "hangs", arguments: " " + hang},
		"the wrapper was killed, and its program continues":                  {service: "killed", killed: true},
	} {
		t.Run(name, func(t *testing.T) {
			host, exe := winos.New(), newDir(t)+`\endless.exe`
			installService(t, exe)
			if !test.killed { // this process ends by itself
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
					t.Fatalf("%d processes of the service run at the same time: %+v", len(running), running)
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
					t.Errorf("after the stop, %+v still run, %v", left, err)
				}
			}
			if second := one(); second == first {
				t.Error("the process of the earlier run still exists")
			}
			must(t, services.Stop(t.Context(), config.Name))
			must(t, host.Files.Remove(exe)) // no process has the file open any more
		})
	}
}

// leaveBehind starts the program as a child of a service's wrapper that has ended.
func leaveBehind(t *testing.T, exe string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), exe, stay)
	must(t, child.Start())
	t.Cleanup(func() { _ = child.Wait() })
}
