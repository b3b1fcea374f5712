package sim_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// install creates a service whose exe is in C:\k. change changes the configuration of the service before that.
func install(t *testing.T, m *sim.Machine, name string, change func(*winos.ServiceConfig)) {
	t.Helper()
	writeExe(t, m, `C:\k\`+name+`.exe`)
	config := winos.ServiceConfig{Name: name, Command: `C:\k\` + name + `.exe`}
	if change != nil {
		change(&config)
	}
	noError(t, m.Host().Services.Apply(t.Context(), config))
}

func after(names ...string) func(*winos.ServiceConfig) {
	return func(c *winos.ServiceConfig) { c.Dependencies = names }
}

func state(t *testing.T, m *sim.Machine, name string) winos.ServiceState {
	t.Helper()
	service, err := m.Host().Services.Get(t.Context(), name)
	noError(t, err)
	return service.State
}

func expectState(t *testing.T, m *sim.Machine, name string, want winos.ServiceState) {
	t.Helper()
	if have := state(t, m, name); have != want {
		t.Errorf("service %s is %s, want %s", name, have, want)
	}
}

// sleep waits for the time d, and then until all other goroutines have handled the events of this time.
func sleep(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func TestAStartThatHangsIsGivenUpAfterThirtySeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		install(t, m, "a", func(c *winos.ServiceConfig) { c.Recovery = []time.Duration{time.Second} })
		m.HangStart("A", true)
		began := time.Now()
		isError(t, m.Host().Services.Start(t.Context(), "a"), winos.ErrStartFailed)
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("the start took %v", took)
		}
		sleep(time.Hour)
		expectState(t, m, "a", winos.ServiceStopped)
		if left := m.Processes(); len(left) > 0 {
			t.Errorf("these processes still run: %+v", left)
		}
		m.HangStart("a", false)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
	})
}

func TestAStartGoesOnWhenTheOneWhoAskedHasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Costs: sim.Costs{ProcessStart: 10 * time.Second}})
		install(t, m, "a", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		isError(t, m.Host().Services.Start(ctx, "a"), context.DeadlineExceeded)
		expectState(t, m, "a", winos.ServiceStartPending)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		expectState(t, m, "a", winos.ServiceRunning)
		if n := m.Starts().Processes; n != 1 {
			t.Errorf("%d processes were started", n)
		}
	})
}

func TestAServiceThatTakesNoStopKeepsStopWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		install(t, m, "a", nil)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		m.HangStop("a", true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := m.Host().Services.Stop(ctx, "a")
		isError(t, err, winos.ErrInUse)
		isError(t, err, context.DeadlineExceeded)
		expectState(t, m, "a", winos.ServiceStopPending)
		isError(t, m.Host().Services.Delete(t.Context(), "a"), winos.ErrInUse)
		noError(t, m.CrashService("a"))
		noError(t, m.Host().Services.Stop(t.Context(), "a"))
		expectState(t, m, "a", winos.ServiceStopped)
	})
}

func TestAFrozenServiceAnswersNoStopAndRunsOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		install(t, m, "a", nil)
		isError(t, m.FreezeService("a"), winos.ErrNotFound)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		noError(t, m.FreezeService("a"))
		began := time.Now()
		err := m.Host().Services.Stop(t.Context(), "a")
		isError(t, err, winos.ErrInUse)
		if time.Since(began) != 30*time.Second {
			t.Errorf("the error is %v after %s", err, time.Since(began))
		}
		expectState(t, m, "a", winos.ServiceRunning)
		time.AfterFunc(time.Second, func() { noError(t, m.CrashService("a")) })
		noError(t, m.Host().Services.Stop(t.Context(), "a")) // the service manager notices that the process has ended
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		noError(t, m.Host().Services.Stop(t.Context(), "a")) // the new process answers
	})
}

func TestADisabledServiceStartsOnceItIsConfiguredAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		install(t, m, "a", nil)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		noError(t, m.DisableService("a"))
		expectState(t, m, "a", winos.ServiceRunning)
		noError(t, m.CrashService("a"))
		sleep(time.Hour)
		expectState(t, m, "a", winos.ServiceStopped)
		isError(t, m.Host().Services.Start(t.Context(), "a"), winos.ErrStartFailed)
		service, err := m.Host().Services.Get(t.Context(), "a")
		noError(t, err)
		noError(t, m.Host().Services.Apply(t.Context(), service.ServiceConfig))
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		expectState(t, m, "a", winos.ServiceRunning)
	})
}

func TestAProcessThatOutlivesItsServiceKeepsItsExe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		install(t, m, "a", nil)
		m.StopLinger("a", 20*time.Second)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		stopped := make(chan error, 1)
		began := time.Now()
		go func() { stopped <- m.Host().Services.Stop(t.Context(), "a") }()
		sleep(time.Second)
		service, err := m.Host().Services.Get(t.Context(), "a")
		noError(t, err)
		if service.State != winos.ServiceStopped || service.PID == 0 {
			t.Errorf("the service is %s, process %d", service.State, service.PID)
		}
		isError(t, m.Host().Files.Remove(`C:\k\a.exe`), winos.ErrInUse)
		noError(t, <-stopped)
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("Stop returned after %v", took)
		}
		noError(t, m.Host().Files.Remove(`C:\k\a.exe`))
	})
}

func TestCrashesAreFollowedByTheRecoveryDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		install(t, m, "a", func(c *winos.ServiceConfig) {
			c.Recovery = []time.Duration{10 * time.Second, 30 * time.Second}
			c.RecoveryReset = 300 * time.Second
		})
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		crash := func(delay time.Duration) {
			t.Helper()
			noError(t, m.CrashService("a"))
			sleep(delay - time.Second)
			expectState(t, m, "a", winos.ServiceStopped)
			sleep(2 * time.Second)
			expectState(t, m, "a", winos.ServiceRunning)
		}
		crash(10 * time.Second)
		crash(30 * time.Second)
		crash(30 * time.Second)
		sleep(300 * time.Second)
		crash(10 * time.Second)
	})
}

func TestAServiceThatEndsWellIsNotRestarted(t *testing.T) {
	end := make(chan struct{})
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Default: func(ctx context.Context, p *sim.Process) int {
			p.Running()
			select {
			case <-end:
			case <-ctx.Done():
			}
			return 0
		}})
		end = make(chan struct{})
		install(t, m, "a", func(c *winos.ServiceConfig) { c.Recovery = []time.Duration{time.Second} })
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		close(end)
		sleep(time.Minute)
		expectState(t, m, "a", winos.ServiceStopped)
	})
}

func TestAServiceThatSomebodyHasOpenIsMarkedForDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		install(t, m, "a", nil)
		services := m.Host().Services
		release, err := m.HoldService("a")
		noError(t, err)
		isError(t, services.Delete(t.Context(), "a"), winos.ErrInUse)
		isError(t, services.Start(t.Context(), "a"), winos.ErrInUse)
		isError(t, services.Apply(t.Context(), winos.ServiceConfig{Name: "a", Command: "x"}), winos.ErrInUse)
		expectState(t, m, "a", winos.ServiceStopped)
		deleted := make(chan error, 1)
		go func() { deleted <- services.Delete(t.Context(), "a") }()
		sleep(time.Second)
		release()
		noError(t, <-deleted)
		_, err = services.Get(t.Context(), "a")
		isError(t, err, winos.ErrNotFound)
	})
}

func TestServicesStartAtBootAfterTheirDependencies(t *testing.T) {
	var order []string
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Default: func(ctx context.Context, p *sim.Process) int {
			name := strings.TrimSuffix(p.Args[0][len(`C:\k\`):], ".exe")
			order = append(order, name)
			p.Running()
			<-ctx.Done()
			return 0
		}, Costs: sim.Costs{ProcessStart: time.Second}})
		install(t, m, "a-last", after("b-middle"))
		install(t, m, "b-middle", after("c-first"))
		install(t, m, "c-first", nil)
		install(t, m, "d-lonely", after("nobody"))
		order = nil
		reboot(t, m)
		sleep(time.Minute)
		if !slices.Equal(order, []string{"c-first", "b-middle", "a-last"}) {
			t.Errorf("the order was %q", order)
		}
		expectState(t, m, "d-lonely", winos.ServiceStopped)
		for _, p := range m.Processes() {
			if p.PID > 12 {
				t.Errorf("after the boot, process ids did not start again: %+v", p)
			}
		}
	})
}

func TestAnUnquotedCommandWithSpacesIsTriedWordByWord(t *testing.T) {
	var args atomic.Pointer[[]string]
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Default: func(ctx context.Context, p *sim.Process) int {
			args.Store(&p.Args)
			p.Running()
			<-ctx.Done()
			return 0
		}})
		writeExe(t, m, `C:\Program Files\wm co\x.exe`)
		for command, want := range map[string][]string{
			`C:\Program Files\wm co\x.exe -a "b c"`:   {`C:\Program Files\wm co\x.exe`, "-a", "b c"},
			`"C:\Program Files\wm co\x.exe" -a`:       {`C:\Program Files\wm co\x.exe`, "-a"},
			`C:\Program Files\wm co\x -a\ \"q\" ""`:   {`C:\Program Files\wm co\x.exe`, `-a\`, `"q"`, ""},
			`"C:\Program Files\wm co\x.exe" a\\"b c"`: {`C:\Program Files\wm co\x.exe`, `a\b c`},
		} {
			noError(t, m.Host().Services.Apply(t.Context(), winos.ServiceConfig{Name: "x", Command: command}))
			noError(t, m.Host().Services.Start(t.Context(), "x"))
			if have := *args.Load(); !slices.Equal(have, want) {
				t.Errorf("the command line %s has the arguments %q", command, have)
			}
			noError(t, m.Host().Services.Stop(t.Context(), "x"))
		}
	})
}

func TestALogRunnerRunsItsProgramWithALog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Programs: map[string]sim.Program{"kubelet.exe": func(ctx context.Context,
			p *sim.Process) int {
			_, _ = fmt.Fprintln(p.Stdout, "hello", p.Args[1:])
			_, _ = fmt.Fprintln(p.Stderr, "from", p.Env["NODE"])
			p.Running()
			<-ctx.Done()
			_, _ = fmt.Fprintln(p.Stdout, "bye")
			return 0
		}}})
		files := m.Host().Files
		writeExe(t, m, `C:\k\kubelet.exe`)
		noError(t, files.MkdirAll(`C:\var\log`, winos.AccessInherit))
		install(t, m, "kube-log-runner", func(c *winos.ServiceConfig) {
			c.Command += ` -log-file C:\var\log\kubelet.log -also-stdout -log-file-size=10Mi C:\k\kubelet.exe --v=2 -x`
			c.Environment = map[string]string{"NODE": "win-1"}
			c.Name = "kubelet"
		})
		for range 2 {
			noError(t, m.Host().Services.Start(t.Context(), "kubelet"))
			isError(t, files.Remove(`C:\k\kubelet.exe`), winos.ErrInUse)
			isError(t, files.Remove(`C:\k\kube-log-runner.exe`), winos.ErrInUse)
			if all := m.Processes(); len(all) != 2 || all[1].Parent != all[0].PID || all[1].Exe != `C:\k\kubelet.exe` {
				t.Errorf("the processes are %+v", all)
			}
			noError(t, m.Host().Services.Stop(t.Context(), "kubelet"))
		}
		log, err := winos.ReadFile(files, `C:\var\log\kubelet.log`)
		noError(t, err)
		if run := "hello [--v=2 -x]\nfrom win-1\nbye\n"; string(log) != run+run {
			t.Errorf("the log is %q", log)
		}
		noError(t, files.Remove(`C:\k\kubelet.exe`))
		isError(t, m.Host().Services.Start(t.Context(), "kubelet"), winos.ErrStartFailed)
	})
}

func TestAKilledProcessCanDoNothingMore(t *testing.T) {
	after := make(chan error, 3)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Default: func(ctx context.Context, p *sim.Process) int {
			w, err := p.Host.Files.Create(`C:\k\open`, winos.AccessInherit)
			if err != nil {
				return 1
			}
			p.Running()
			<-ctx.Done()
			_, err = w.Write([]byte("x"))
			after <- err
			after <- winos.WriteFile(p.Host.Files, `C:\k\late`, strings.NewReader("x"), winos.AccessInherit)
			after <- p.Host.Environment.Set(context.WithoutCancel(ctx), "LATE", "x")
			return 0
		}})
		install(t, m, "a", nil)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		before := m.Snapshot()
		noError(t, m.CrashService("a"))
		for range 3 {
			if err := <-after; err == nil {
				t.Error("a killed process changed the machine")
			}
		}
		sleep(time.Second)
		for _, line := range sim.Diff(before, m.Snapshot()) {
			if !strings.HasPrefix(line, "~ service A") {
				t.Error(line)
			}
		}
		noError(t, m.Host().Files.Remove(`C:\k\open`))
	})
}

func TestWithoutRightsNothingIsChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		install(t, m, "a", nil)
		before := m.Snapshot()
		m.SetAdmin(false)
		ctx, h := t.Context(), m.Host()
		_, err := h.Network.EnsureEndpoint(ctx, "x", "y", netip.Addr{})
		_, open := h.Files.Open(m.Home() + `\x`)
		for what, err := range map[string]error{
			"apply": h.Services.Apply(ctx, winos.ServiceConfig{Name: "b", Command: "x"}),
			"start": h.Services.Start(ctx, "a"),
			"stop":  h.Services.Stop(ctx, "a"), "delete": h.Services.Delete(ctx, "a"),
			"set":   h.Environment.Set(ctx, "X", "y"),
			"unset": h.Environment.Unset(ctx, "OS"), "add": h.Trust.Add(ctx, []byte{0x30, 0}),
			"remove": h.Trust.Remove(ctx, nil),
			"name":   h.System.SetHostname(ctx, "other"), "feature": h.System.EnableFeature(ctx, "Containers"),
			"endpoint": err, "open": open,
			"reboot": h.System.Reboot(ctx, "x"), "defender": h.System.ExcludeFromDefender(ctx, "x"),
			"hns": h.Network.RemoveHNSNetwork(ctx, "x"),
		} {
			if err == nil {
				t.Errorf("%s was allowed, but it must be refused", what)
			}
			isError(t, err, winos.ErrDenied)
		}
		m.SetAdmin(true)
		if diff := sim.Diff(before, m.Snapshot()); len(diff) > 0 {
			t.Errorf("the refused operations changed the machine: %q", diff)
		}
	})
}
