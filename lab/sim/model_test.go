package sim_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// model is a simple service manager for a single caller. The test compares the simulated service manager with it.
type model map[string]*modelService

type modelService struct {
	needs   []string
	running bool
	fails   bool
	// recovery is the delay of the only recovery action. It is 0 if there is none. due is when the service is restarted
	// next.
	recovery time.Duration
	due      time.Time
}

// start starts a service of the model. It reports whether the start succeeds.
func (m model) start(name string, now time.Time) bool {
	s, exists := m[name]
	switch {
	case !exists:
		return false
	case s.running:
		return true
	}
	for _, need := range s.needs {
		if !m.start(need, now) {
			return false
		}
	}
	if s.fails {
		s.end(now)
		return false
	}
	s.running = true
	return true
}

// end simulates that the process of the service ends unexpectedly.
func (s *modelService) end(now time.Time) {
	s.running = false
	if s.recovery > 0 {
		s.due = now.Add(s.recovery)
	}
}

func (m model) stop(name string) {
	for other, s := range m {
		if s.running && slices.Contains(s.needs, name) {
			m.stop(other)
		}
	}
	m[name].running = false
}

// reaches reports whether one of the services in needs is the service name, or depends on it directly or indirectly.
func (m model) reaches(needs []string, name string) bool {
	for _, need := range needs {
		if need == name {
			return true
		}
		if s, exists := m[need]; exists && m.reaches(s.needs, name) {
			return true
		}
	}
	return false
}

// restart executes all recovery actions that are due at the time now.
func (m model) restart(now time.Time) {
	for {
		next := ""
		for name, s := range m {
			if !s.due.IsZero() && !s.due.After(now) && (next == "" || s.due.Before(m[next].due)) {
				next = name
			}
		}
		if next == "" {
			return
		}
		at := m[next].due
		m[next].due = time.Time{}
		m.start(next, at)
	}
}

func (m model) reboot(now time.Time) {
	for _, s := range m {
		s.running, s.due = false, time.Time{}
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		m.start(name, now)
	}
}

// walk applies the same random operations to a machine and to the model.
type walk struct {
	t       *testing.T
	random  *rand.Rand
	machine *sim.Machine
	model   model
	names   []string
	log     []string
}

func (w *walk) pick() string { return w.names[w.random.IntN(len(w.names))] }

func (w *walk) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *walk) step() {
	w.t.Helper()
	ctx, services, name := w.t.Context(), w.machine.Host().Services, w.pick()
	s, exists := w.model[name]
	switch w.random.IntN(12) {
	case 0, 1:
		w.apply(name)
	case 2, 3:
		err := services.Start(ctx, name)
		want := w.model.start(name, time.Now())
		w.note("start %s: %v", name, err)
		w.check(want == (err == nil), "start %s gives %v, and the model says %t", name, err, want)
		w.check(err == nil || !exists || errors.Is(err, winos.ErrStartFailed), "start %s gives %v", name, err)
	case 4, 5:
		err := services.Stop(ctx, name)
		w.note("stop %s: %v", name, err)
		w.check(exists == (err == nil), "stop %s gives %v", name, err)
		if exists {
			w.model.stop(name)
		}
	case 6:
		err := services.Delete(ctx, name)
		w.note("delete %s: %v", name, err)
		w.check((err == nil) == (!exists || !s.running), "delete %s gives %v", name, err)
		if err == nil {
			delete(w.model, name)
		}
	case 7:
		err := w.machine.CrashService(name)
		synctest.Wait()
		w.note("crash %s: %v", name, err)
		w.check((err == nil) == (exists && s.running), "crash %s gives %v", name, err)
		if err == nil {
			s.end(time.Now())
		}
	case 8:
		if exists {
			s.fails = w.random.IntN(3) == 0
			w.machine.FailService(name, s.fails)
			w.note("%s fails: %t", name, s.fails)
		}
	default:
		w.pass()
	}
	synctest.Wait()
	w.compare()
}

func (w *walk) apply(name string) {
	w.t.Helper()
	config := winos.ServiceConfig{Name: name, Command: `C:\k\` + name + `.exe`}
	for range w.random.IntN(3) {
		config.Dependencies = append(config.Dependencies, w.pick())
	}
	if w.random.IntN(3) == 0 {
		config.Recovery = []time.Duration{time.Duration(1+w.random.IntN(90)) * time.Second}
	}
	err := w.machine.Host().Services.Apply(w.t.Context(), config)
	w.note("apply %s needs %q recovery %v: %v", name, config.Dependencies, config.Recovery, err)
	circular := w.model.reaches(config.Dependencies, name)
	w.check(circular == (err != nil), "apply %s gives %v, and the model says %t", name, err, circular)
	if err != nil {
		return
	}
	if w.model[name] == nil {
		w.model[name] = &modelService{}
		w.machine.FailService(name, false)
	}
	s := w.model[name]
	s.needs, s.recovery = config.Dependencies, 0
	if len(config.Recovery) > 0 {
		s.recovery = config.Recovery[0]
	}
}

// pass advances the clock or reboots the machine.
func (w *walk) pass() {
	w.t.Helper()
	if w.random.IntN(4) > 0 {
		d := time.Duration(w.random.IntN(60)) * time.Second
		w.note("%v pass", d)
		until := time.Now().Add(d)
		sleep(d)
		w.model.restart(until)
		return
	}
	w.note("reboot")
	w.machine.PowerCut()
	w.machine.PowerOn()
	synctest.Wait()
	w.model.reboot(time.Now())
}

func (w *walk) compare() {
	w.t.Helper()
	names, err := w.machine.Host().Services.List(w.t.Context())
	noError(w.t, err)
	w.check(slices.Equal(names, slices.Sorted(maps.Keys(w.model))), "the services are %q", names)
	running := 0
	for name, s := range w.model {
		service, err := w.machine.Host().Services.Get(w.t.Context(), name)
		noError(w.t, err)
		want := winos.ServiceStopped
		if s.running {
			want = winos.ServiceRunning
			running++
		}
		w.check(service.State == want && (service.PID != 0) == s.running,
			"%s is %s with process %d, and the model says %s", name, service.State, service.PID, want)
	}
	w.check(len(w.machine.Processes()) == running, "%d processes for %d services", len(w.machine.Processes()), running)
}

func (w *walk) check(holds bool, format string, args ...any) {
	w.t.Helper()
	if holds {
		return
	}
	for _, line := range w.log[max(0, len(w.log)-40):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func TestTheServiceManagerDoesWhatItsModelDoes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	for round := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			w := walk{
				t: t, random: rand.New(rand.NewPCG(seed, round)), machine: machine(t, sim.Options{}), model: model{},
				names: []string{"A", "B", "C", "D"},
			}
			for _, name := range w.names {
				writeExe(t, w.machine, `C:\k\`+name+`.exe`)
			}
			for range 300 {
				w.step()
			}
		})
	}
}

// TestTheServiceManagerSurvivesManyCallersAtOnce checks conditions that must hold whatever the order of the operations
// is.
func TestTheServiceManagerSurvivesManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("the seed is %d", seed)
	for round := range uint64(10) {
		synctest.Test(t, func(t *testing.T) { crowd(t, rand.New(rand.NewPCG(seed, round))) })
	}
}

// chain returns the names of services. Each name is mapped to the services on which this service depends.
func chain() map[string][]string {
	return map[string][]string{"A": nil, "B": {"A"}, "C": {"A", "B"}, "D": {"C"}, "E": {"A"}, "F": {"E", "D"}}
}

func crowd(t *testing.T, random *rand.Rand) {
	t.Helper()
	m := machine(t, sim.Options{Costs: sim.Costs{ProcessStart: 3 * time.Second, ShutdownDelay: time.Second,
		Off: time.Minute}})
	for _, name := range slices.Sorted(maps.Keys(chain())) {
		install(t, m, name, after(chain()[name]...))
	}
	m.StopLinger("B", 5*time.Second)
	m.StopLinger("D", 7*time.Second)
	var callers sync.WaitGroup
	for range 8 {
		seed := random.Uint64()
		callers.Go(func() { caller(t, m, rand.New(rand.NewPCG(seed, 1))) })
	}
	callers.Wait()
	m.PowerOn()
	sleep(5 * time.Minute)
	for name, needs := range chain() {
		if state(t, m, name) != winos.ServiceRunning {
			continue
		}
		for _, need := range needs {
			expectState(t, m, need, winos.ServiceRunning)
		}
	}
	noError(t, m.Host().Services.Stop(t.Context(), "A"))
	for name := range chain() {
		expectState(t, m, name, winos.ServiceStopped)
		noError(t, m.Host().Services.Delete(t.Context(), name))
		noError(t, m.Host().Files.Remove(`C:\k\`+name+`.exe`))
	}
	if left := m.Processes(); len(left) > 0 {
		t.Errorf("these processes still run: %+v", left)
	}
}

func caller(t *testing.T, m *sim.Machine, random *rand.Rand) {
	t.Helper()
	names := slices.Sorted(maps.Keys(chain()))
	for range 40 {
		name := names[random.IntN(len(names))]
		var err error
		switch random.IntN(20) {
		case 0:
			err = m.Host().System.Reboot(t.Context(), "chaos")
		case 1:
			_, err = m.WaitBoot(t.Context())
		case 2, 3, 4, 5, 6, 7, 8:
			err = m.Host().Services.Stop(t.Context(), name)
		case 9, 10:
			wait := time.NewTimer(time.Duration(random.IntN(10)) * time.Second)
			<-wait.C
		default:
			err = m.Host().Services.Start(t.Context(), name)
		}
		if err != nil && !errors.Is(err, sim.ErrOff) && !errors.Is(err, winos.ErrStartFailed) {
			t.Errorf("an unexpected error: %v", err)
		}
	}
}
