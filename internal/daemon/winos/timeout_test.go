package winos_test

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// killer kills processes, unless denied is set.
type killer struct {
	winos.Programs
	denied bool
}

// Kill implements winos.Programs.
func (k *killer) Kill(ctx context.Context, pid uint32, runs func(exe string) bool) error {
	if k.denied {
		return winos.ErrDenied
	}
	return k.Programs.Kill(ctx, pid, runs)
}

func TestAServiceThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := sim.New(sim.Options{Costs: sim.Costs{ServiceStart: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err = winos.WriteFile(m.Host().Files, `C:\x.exe`, strings.NewReader("MZ"), winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
		killer := &killer{Programs: m.Host().Programs}
		host := m.Host()
		host.Programs = killer
		services := winos.WithTimeouts(host).Services
		if err = services.Apply(t.Context(), winos.ServiceConfig{Name: "x", Command: `C:\x.exe`,
			Description: contract.ManagedDescription}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m.HangStart("x", true)
		if err = services.Start(t.Context(), "x"); !errors.Is(err, winos.ErrStartFailed) ||
			time.Since(began) != 2*time.Minute {
			t.Errorf("start: %v after %s", err, time.Since(began))
		}
		m.HangStart("x", false)
		synctest.Wait()
		if err = services.Start(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		m.HangStop("x", true)
		killer.denied = true
		began = time.Now()
		if err = services.Stop(t.Context(), "x"); !errors.Is(err, winos.ErrInUse) || time.Since(began) != time.Minute {
			t.Errorf("stop: %v after %s", err, time.Since(began))
		}
		killer.denied = false
		if err = services.Stop(t.Context(), "x"); err != nil {
			t.Errorf("a stop that kills the process: %v", err)
		}
		if s, err := services.Get(t.Context(), "x"); err != nil || s.State != winos.ServiceStopped {
			t.Errorf("the service is %s, %v", s.State, err)
		}
	})
}

// A service of another vendor may share its process with other services. So the process must not be ended.
func TestAServiceOfOthersThatDoesNotComeUpIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := withService(t, exe)
		m.SetCosts(sim.Costs{ServiceStart: time.Hour})
		m.HangStart("x", true)
		services := winos.WithTimeouts(m.Host()).Services
		if err := services.Start(t.Context(), "x"); !errors.Is(err, winos.ErrStartFailed) {
			t.Errorf("start: %v", err)
		}
		synctest.Wait()
		if s, err := services.Get(t.Context(), "x"); err != nil || s.State != winos.ServiceStartPending {
			t.Errorf("the service is %s, %v", s.State, err)
		}
	})
}

// A suspended process answers no request, and its service stays in the state Running.
func TestAServiceWhoseProcessIsFrozenIsEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		command, needs, frozen string
		denied                 bool
		answer                 time.Duration // the service manager's delay; 0 means half a minute
	}{
		"a program":                     {command: exe, frozen: "x"},
		"a wrapped program":             {command: contract.PathKubeLogRunner + ` -log-file=C:\var\log\x.log ` + exe, frozen: "x"},
		"the daemon":                    {command: contract.PathDaemon + " controller", frozen: "x"},
		"a service that needs it":       {command: exe, needs: "x", frozen: "y"},
		"no answer at all":              {command: contract.PathDaemon + " controller", frozen: "x", answer: time.Hour},
		"a process that can't be ended": {command: exe, frozen: "x", denied: true},
		"a daemon that can't be ended":  {command: contract.PathDaemon + " controller", frozen: "x", denied: true},
		"with a dependent service":      {command: contract.PathDaemon + " controller", needs: "x", frozen: "y"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := withService(t, c.command)
				m.SetCosts(sim.Costs{ServiceControl: c.answer})
				must(t, winos.WriteFile(m.Host().Files, contract.PathDaemon, strings.NewReader("MZ"), winos.AccessInherit))
				must(t, winos.WriteFile(m.Host().Files, `C:\y.exe`, strings.NewReader("MZ"), winos.AccessInherit))
				host := m.Host()
				host.Programs = &killer{Programs: host.Programs, denied: c.denied}
				services := winos.WithTimeouts(host).Services
				last := "x"
				if c.needs != "" {
					last = "y"
					must(t, services.Apply(t.Context(), winos.ServiceConfig{Name: "y", Command: `C:\y.exe`,
						Dependencies: []string{c.needs}}))
				}
				must(t, services.Start(t.Context(), last))
				must(t, m.FreezeService(c.frozen))
				frozen, err := services.Get(t.Context(), c.frozen)
				must(t, err)
				began := time.Now()
				err = services.Stop(t.Context(), "x")
				if c.denied {
					if s, getErr := services.Get(t.Context(), "x"); !errors.Is(err, winos.ErrInUse) ||
						!errors.Is(err, winos.ErrDenied) || getErr != nil || s.State != winos.ServiceRunning {
						t.Errorf("stop: %v; the service is %s, %v", err, s.State, getErr)
					}
					return
				}
				if limit := min(cmp.Or(c.answer, 30*time.Second), time.Minute); err != nil || time.Since(began) != limit {
					t.Errorf("stop: %v after %s", err, time.Since(began))
				}
				if slices.ContainsFunc(m.Processes(), func(p sim.ProcessInfo) bool { return p.PID == frozen.PID }) {
					t.Error("the process still exists")
				}
				must(t, services.Start(t.Context(), last))
				must(t, services.Stop(t.Context(), "x"))
			})
		})
	}
}

func TestAServiceDoesNotEndItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stopped := make(chan error, 1)
		m, err := sim.New(sim.Options{Programs: map[string]sim.Program{"x.exe": func(ctx context.Context,
			p *sim.Process) int {
			p.Running()
			time.Sleep(time.Second)
			stopped <- winos.WithTimeouts(p.Host).Services.Stop(ctx, "x")
			<-ctx.Done()
			return 0
		}}})
		must(t, err)
		defer func() { must(t, m.Close()) }()
		must(t, winos.WriteFile(m.Host().Files, `C:\x.exe`, strings.NewReader("MZ"), winos.AccessInherit))
		services := m.Host().Services
		must(t, services.Apply(t.Context(), winos.ServiceConfig{Name: "x", Command: `C:\x.exe`}))
		must(t, services.Start(t.Context(), "x"))
		must(t, m.FreezeService("x"))
		if err = <-stopped; !errors.Is(err, winos.ErrInUse) {
			t.Errorf("stop: %v", err)
		}
		if s, err := services.Get(t.Context(), "x"); err != nil || s.State != winos.ServiceRunning {
			t.Errorf("the service is %s, %v", s.State, err)
		}
	})
}

// silent is a host network service that answers only when the test allows it.
type silent struct {
	winos.Network
	answers chan struct{}
	calls   *atomic.Int32
}

func (s silent) HNSNetwork(context.Context, string) (winos.HNSNetwork, error) {
	s.calls.Add(1)
	<-s.answers
	return winos.HNSNetwork{Name: "late"}, nil
}

func (s silent) RemoveHNSNetwork(ctx context.Context, _ string) error {
	s.calls.Add(1)
	<-s.answers
	return ctx.Err() // the real service would continue with the next step
}

func TestCallsOfTheHostNetworkServiceEndInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := silent{answers: make(chan struct{}), calls: new(atomic.Int32)}
		network := winos.WithTimeouts(winos.Host{Network: service}).Network
		look := func(ctx context.Context, within time.Duration, want string) {
			t.Helper()
			began := time.Now()
			_, err := network.HNSNetwork(ctx, "x")
			if err == nil || !strings.Contains(err.Error(), want) || time.Since(began) != within {
				t.Errorf("the call returns %v after %s; want %q after %s", err, time.Since(began), want, within)
			}
			if errors.Is(err, winos.ErrNotFound) || errors.Is(err, winos.ErrUnsupported) {
				t.Errorf("%v is returned instead of an answer of HNS", err)
			}
			synctest.Wait()
		}
		const says = "the host network service has not answered in time"
		ended, end := context.WithCancel(t.Context())
		end()
		if look(ended, 0, context.Canceled.Error()); service.calls.Load() != 0 {
			t.Error("a call is made although the caller has given up")
		}
		look(t.Context(), 30*time.Second, says)
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		look(short, time.Second, context.DeadlineExceeded.Error())
		// A slow call must not block a removal, which has its own time limit.
		began, removed := time.Now(), make(chan error)
		go func() { removed <- network.RemoveHNSNetwork(t.Context(), "x") }()
		if err := <-removed; err == nil || !strings.Contains(err.Error(), says) || time.Since(began) != 2*time.Minute {
			t.Errorf("removing: %v after %s", err, time.Since(began))
		}
		for range 2 { // as many unanswered calls as are allowed
			look(t.Context(), 30*time.Second, says)
		}
		for range 3 {
			look(t.Context(), 0, says)
		}
		if n := service.calls.Load(); n != 5 { // with the removal
			t.Errorf("there are %d unanswered calls", n)
		}
		close(service.answers)
		synctest.Wait()
		if found, err := network.HNSNetwork(t.Context(), "x"); err != nil || found.Name != "late" {
			t.Errorf("the call returns %+v, %v", found, err)
		}
		if err := network.RemoveHNSNetwork(t.Context(), "x"); err != nil {
			t.Errorf("removing: %v", err)
		}
	})
}

// making is a host network service that needs a minute to create an endpoint. It lists the created endpoints.
type making struct {
	winos.Network
	made, inside, most atomic.Int32
}

func (m *making) enter() (leave func()) {
	if n := m.inside.Add(1); n > m.most.Load() {
		m.most.Store(n)
	}
	return func() { m.inside.Add(-1) }
}

func (m *making) EnsureEndpoint(context.Context, string, string, netip.Addr) (netip.Addr, error) {
	defer m.enter()()
	if m.made.Load() == 0 {
		time.Sleep(time.Minute)
		m.made.Add(1)
	}
	return netip.MustParseAddr("10.132.1.2"), nil
}

func (m *making) RemoveHNSNetwork(context.Context, string) error {
	defer m.enter()()
	return nil
}

func (m *making) HNSNetwork(context.Context, string) (winos.HNSNetwork, error) {
	return winos.HNSNetwork{}, nil
}

func TestWhileAChangeOfTheHostNetworkServiceIsUnderWayNoOtherIsMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &making{}
		network := winos.WithTimeouts(winos.Host{Network: service}).Network
		const says = "the host network service has not answered in time"
		for range 2 {
			if _, err := network.EnsureEndpoint(t.Context(), "x", "VIPEndpoint", netip.Addr{}); err == nil ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("creating an endpoint: %v", err)
			}
		}
		if err := network.RemoveHNSNetwork(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("removing: %v", err)
		}
		if _, err := network.HNSNetwork(t.Context(), "x"); err != nil {
			t.Errorf("looking: %v", err)
		}
		time.Sleep(time.Minute)
		// This call must find the endpoint that was created late.
		if _, err := network.EnsureEndpoint(t.Context(), "x", "VIPEndpoint", netip.Addr{}); err != nil {
			t.Errorf("creating an endpoint: %v", err)
		}
		if err := network.RemoveHNSNetwork(t.Context(), "x"); err != nil {
			t.Errorf("removing: %v", err)
		}
		if made, most := service.made.Load(), service.most.Load(); made != 1 || most != 1 {
			t.Errorf("%d endpoints were created, with %d changes at the same time", made, most)
		}
	})
}

// slow is a host network service that removes a network step by step.
type slow struct {
	winos.Network
	steps *atomic.Int32
}

func (s slow) RemoveHNSNetwork(ctx context.Context, _ string) error {
	for range 5 {
		time.Sleep(time.Minute)
		if err := ctx.Err(); err != nil {
			return err
		}
		s.steps.Add(1)
	}
	return nil
}

// The caller has given up the removal. In the meantime, the daemon may have rolled back to a revision that uses this
// network. So the removal must not continue.
func TestARemovalOfANetworkThatWasGivenUpGoesNoFurther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := slow{steps: new(atomic.Int32)}
		network := winos.WithTimeouts(winos.Host{Network: service}).Network
		if err := network.RemoveHNSNetwork(t.Context(), "x"); err == nil {
			t.Error("the removal did not exceed its time limit")
		}
		time.Sleep(time.Hour)
		if n := service.steps.Load(); n > 2 {
			t.Errorf("%d steps were taken", n)
		}
	})
}
