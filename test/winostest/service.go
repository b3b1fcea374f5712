package winostest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/test/winostest/order"
)

func serviceCases() []testCase {
	return []testCase{
		{name: "a service that does not exist is not found", run: serviceMissing},
		{name: "a service is created stopped and as it was asked for", run: serviceCreated},
		{name: "a change reaches everything but the running process", run: serviceChanged},
		{name: "a disabled service does not start until it is configured again", run: serviceDisabled},
		{name: "service names that Windows refuses are refused", run: serviceNames},
		{name: "start and stop can be repeated", run: serviceRepeated},
		{name: "dependencies start first and dependants stop first", run: serviceOrder},
		{name: "a missing dependency keeps a service from starting", run: serviceDependencyMissing},
		{name: "a dependency that fails keeps a service from starting", run: serviceDependencyFails},
		{name: "a service that depends on itself is refused", needs: []Ability{CircularRefused}, run: serviceCircular},
		{name: "a process that ends at once is a start that failed", run: serviceFails},
		{name: "an exe that does not exist is a start that failed", run: serviceExeMissing},
		{name: "a crashed service is restarted", needs: []Ability{Recovery}, run: serviceRecovers},
		{name: "a process gets the environment of the system and of its service", needs: []Ability{ServiceEnvironment},
			run: serviceEnvironment},
		{name: "a running service can not be deleted and a stopped one is gone at once", run: serviceDeleted},
		{name: "a running service that is to be deleted goes when it has stopped", run: serviceDeletedAtStop},
		{name: "a context that has ended changes nothing", run: serviceContext},
	}
}

// service creates a service that runs the test service's exe. It removes the service when the test ends.
func (m machine) service(t *testing.T, name string, orders order.Orders,
	change func(*winos.ServiceConfig)) winos.ServiceConfig {
	t.Helper()
	exe := m.dir + `\` + name + ".exe"
	if found, err := winos.Exists(m.Host.Files, exe); err != nil || !found {
		noError(t, err)
		m.InstallService(t, exe)
	}
	config := winos.ServiceConfig{Name: m.prefix + name, Description: "A test of wmco.", Command: orders.Command(exe)}
	if change != nil {
		change(&config)
	}
	noError(t, m.Host.Services.Apply(t.Context(), config))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := m.Host.Services.Stop(ctx, config.Name); err != nil && !errors.Is(err, winos.ErrNotFound) {
			t.Errorf("stopping %s at the end of the test: %v", config.Name, err)
		}
		if err := m.Host.Services.Delete(ctx, config.Name); err != nil {
			t.Errorf("deleting %s at the end of the test: %v", config.Name, err)
		}
	})
	return config
}

func (m machine) get(t *testing.T, name string) winos.Service {
	t.Helper()
	service, err := m.Host.Services.Get(t.Context(), name)
	noError(t, err)
	return service
}

func (m machine) start(t *testing.T, name string) winos.Service {
	t.Helper()
	noError(t, m.Host.Services.Start(t.Context(), name))
	service := m.get(t, name)
	if service.State != winos.ServiceRunning || service.PID == 0 {
		t.Fatalf("after its start, service %s is %s with process %d", name, service.State, service.PID)
	}
	return service
}

func (m machine) stop(t *testing.T, name string) {
	t.Helper()
	noError(t, m.Host.Services.Stop(t.Context(), name))
	if service := m.get(t, name); service.State != winos.ServiceStopped || service.PID != 0 {
		t.Fatalf("after its stop, service %s is %s with process %d", name, service.State, service.PID)
	}
}

func sameConfig(t *testing.T, want, have winos.ServiceConfig) {
	t.Helper()
	if diff := cmp.Diff(want, have, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("configuration (-want +have):\n%s", diff)
	}
}

func serviceMissing(m machine) {
	t := m.t
	services, name := m.Host.Services, m.prefix+"nobody"
	_, err := services.Get(t.Context(), name)
	isError(t, "getting", err, winos.ErrNotFound)
	isError(t, "starting", services.Start(t.Context(), name), winos.ErrNotFound)
	isError(t, "stopping", services.Stop(t.Context(), name), winos.ErrNotFound)
	noError(t, services.Delete(t.Context(), name))
}

func serviceCreated(m machine) {
	t := m.t
	other := m.service(t, "Other", order.Orders{}, nil)
	config := m.service(t, "Created", order.Orders{}, func(c *winos.ServiceConfig) {
		c.Description = "OpenShift managed: ünïcode"
		c.Command = `"` + m.dir + `\Created.exe" linger=1ms`
		c.Dependencies = []string{other.Name}
		c.Environment = map[string]string{"FIRST": "one", "Second": "two = 2", "EMPTY": ""}
		c.Recovery = []time.Duration{10 * time.Second, 1500 * time.Millisecond}
		c.RecoveryReset = 300 * time.Second
	})
	for range 2 {
		service := m.get(t, config.Name)
		sameConfig(t, config, service.ServiceConfig)
		if service.State != winos.ServiceStopped || service.PID != 0 || service.NoAutoStart {
			t.Errorf("a new service is %+v", service)
		}
		noError(t, m.Host.Services.Apply(t.Context(), config))
	}
	names, err := m.Host.Services.List(t.Context())
	noError(t, err)
	if n := len(names) - len(slices.DeleteFunc(slices.Clone(names),
		func(n string) bool { return n == config.Name })); n != 1 {
		t.Errorf("the list of services has %s %d times", config.Name, n)
	}
	upper, err := m.Host.Services.Get(t.Context(), strings.ToUpper(config.Name))
	noError(t, err)
	if upper.Command != config.Command {
		t.Error("the name in upper case does not find the same service")
	}
}

func serviceDisabled(m machine) {
	t := m.t
	config := m.service(t, "Disabled", order.Orders{}, nil)
	running := m.start(t, config.Name)
	m.DisableService(t, config.Name)
	if service := m.get(t, config.Name); !service.NoAutoStart || service.PID != running.PID {
		t.Errorf("after the running service was disabled, it is %+v", service)
	}
	m.stop(t, config.Name)
	isError(t, "starting", m.Host.Services.Start(t.Context(), config.Name), winos.ErrStartFailed)
	noError(t, m.Host.Services.Apply(t.Context(), config))
	if service := m.get(t, config.Name); service.NoAutoStart {
		t.Error("after it was configured again, the service does not start at boot")
	}
	m.start(t, config.Name)
}

func serviceChanged(m machine) {
	t := m.t
	other := m.service(t, "Other", order.Orders{}, nil)
	config := m.service(t, "Changed", order.Orders{}, func(c *winos.ServiceConfig) {
		c.Environment = map[string]string{"GOES": "away", "STAYS": "here"}
		c.Recovery = []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	})
	before := m.start(t, config.Name)
	config.Description = "Another description."
	config.Command += " linger=2ms"
	config.Dependencies = []string{other.Name}
	config.Environment = map[string]string{"STAYS": "changed"}
	config.Recovery = []time.Duration{5 * time.Second}
	config.RecoveryReset = time.Minute
	noError(t, m.Host.Services.Apply(t.Context(), config))
	after := m.get(t, config.Name)
	sameConfig(t, config, after.ServiceConfig)
	if after.State != before.State || after.PID != before.PID {
		t.Errorf("after a change of the configuration, "+
			"the service is %s with process %d; before, it was %s with process %d", after.State, after.PID,
			before.State, before.PID)
	}
	config.Dependencies, config.Environment, config.Recovery, config.RecoveryReset = nil, nil, nil, 0
	noError(t, m.Host.Services.Apply(t.Context(), config))
	sameConfig(t, config, m.get(t, config.Name).ServiceConfig)
}

func serviceNames(m machine) {
	t := m.t
	for _, name := range []string{"", `a/b`, `a\b`, strings.Repeat("x", 257)} {
		err := m.Host.Services.Apply(t.Context(), winos.ServiceConfig{Name: name, Command: m.dir + `\x.exe`})
		isError(t, "applying "+name, err, winos.ErrInvalidName)
	}
}

func serviceRepeated(m machine) {
	t := m.t
	config := m.service(t, "Repeated", order.Orders{}, nil)
	m.stop(t, config.Name)
	first := m.start(t, config.Name)
	if again := m.start(t, config.Name); again.PID != first.PID {
		t.Error("a second start started another process")
	}
	m.stop(t, config.Name)
	m.stop(t, config.Name)
	m.start(t, config.Name)
	m.stop(t, config.Name)
}

func serviceOrder(m machine) {
	t := m.t
	// The dependencies are: last needs middle, middle needs first, and aside also needs first.
	first := m.service(t, "First", order.Orders{}, nil)
	needs := func(name string) func(*winos.ServiceConfig) {
		return func(c *winos.ServiceConfig) { c.Dependencies = []string{strings.ToUpper(name)} }
	}
	middle := m.service(t, "Middle", order.Orders{}, needs(first.Name))
	last := m.service(t, "Last", order.Orders{}, needs(middle.Name))
	aside := m.service(t, "Aside", order.Orders{}, needs(first.Name))
	m.start(t, last.Name)
	expect := func(when string, running ...string) {
		t.Helper()
		for _, name := range []string{first.Name, middle.Name, last.Name, aside.Name} {
			want := winos.ServiceStopped
			if slices.Contains(running, name) {
				want = winos.ServiceRunning
			}
			if have := m.get(t, name).State; have != want {
				t.Errorf("%s, service %s is %s, want %s", when, name, have, want)
			}
		}
	}
	expect("after the start of the last", first.Name, middle.Name, last.Name)
	expectDependants := func(name string, want ...string) {
		t.Helper()
		have, err := m.Host.Services.Dependants(t.Context(), strings.ToLower(name))
		noError(t, err)
		if !slices.Equal(have, want) {
			t.Errorf("stopping %s would also stop %v, want %v", name, have, want)
		}
	}
	expectDependants(first.Name, last.Name, middle.Name)
	expectDependants(last.Name)
	m.start(t, aside.Name)
	expectDependants(first.Name, aside.Name, last.Name, middle.Name)
	expectDependants(m.prefix + "nobody")
	m.stop(t, middle.Name)
	expect("after the stop of the middle one", first.Name, aside.Name)
	m.start(t, last.Name)
	m.stop(t, first.Name)
	expect("after the stop of the first")
}

func serviceDependencyMissing(m machine) {
	t := m.t
	config := m.service(t, "Lonely", order.Orders{},
		func(c *winos.ServiceConfig) { c.Dependencies = []string{m.prefix + "nobody"} })
	isError(t, "starting", m.Host.Services.Start(t.Context(), config.Name), winos.ErrStartFailed)
}

func serviceDependencyFails(m machine) {
	t := m.t
	broken := m.service(t, "Broken", order.Orders{Fail: true}, nil)
	config := m.service(t, "Healthy", order.Orders{},
		func(c *winos.ServiceConfig) { c.Dependencies = []string{broken.Name} })
	isError(t, "starting", m.Host.Services.Start(t.Context(), config.Name), winos.ErrStartFailed)
	if state := m.get(t, config.Name).State; state != winos.ServiceStopped {
		t.Errorf("the service is %s", state)
	}
}

func serviceCircular(m machine) {
	t := m.t
	a := m.service(t, "A", order.Orders{}, nil)
	b := m.service(t, "B", order.Orders{}, func(c *winos.ServiceConfig) { c.Dependencies = []string{a.Name} })
	for name, dependencies := range map[string][]string{a.Name: {b.Name}, b.Name: {b.Name}} {
		config := m.get(t, name).ServiceConfig
		config.Dependencies = dependencies
		if err := m.Host.Services.Apply(t.Context(), config); err == nil {
			t.Errorf("service %s was allowed to depend on %v", name, dependencies)
		}
	}
	sameConfig(t, a, m.get(t, a.Name).ServiceConfig)
	sameConfig(t, b, m.get(t, b.Name).ServiceConfig)
}

func serviceFails(m machine) {
	t := m.t
	config := m.service(t, "Fails", order.Orders{Fail: true}, nil)
	for range 2 {
		isError(t, "starting", m.Host.Services.Start(t.Context(), config.Name), winos.ErrStartFailed)
		eventually(t, "the service that failed is stopped",
			func() bool { return m.get(t, config.Name).State == winos.ServiceStopped })
	}
	config.Command = order.Orders{}.Command(m.dir + `\Fails.exe`)
	noError(t, m.Host.Services.Apply(t.Context(), config))
	m.start(t, config.Name)
}

func serviceExeMissing(m machine) {
	t := m.t
	config := m.service(t, "Missing", order.Orders{},
		func(c *winos.ServiceConfig) { c.Command = m.dir + `\nowhere\x.exe` })
	isError(t, "starting", m.Host.Services.Start(t.Context(), config.Name), winos.ErrStartFailed)
}

func serviceRecovers(m machine) {
	t := m.t
	config := m.service(t, "Crashes", order.Orders{}, func(c *winos.ServiceConfig) {
		c.Recovery = []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}
	})
	first := m.start(t, config.Name)
	crash := func(pid uint32) (restarted uint32) {
		t.Helper()
		noError(t, m.Host.Programs.Kill(t.Context(), pid, winos.Runs(m.dir+`\Crashes.exe`)))
		eventually(t, "the crashed service runs in a new process", func() bool {
			service := m.get(t, config.Name)
			restarted = service.PID
			return service.State == winos.ServiceRunning && restarted != pid
		})
		return restarted
	}
	second := crash(first.PID)
	config.Command += " linger=1ms"
	noError(t, m.Host.Services.Apply(t.Context(), config))
	crash(second)
}

func serviceEnvironment(m machine) {
	t := m.t
	path := m.dir + `\environment.txt`
	noError(t, m.Host.Environment.Set(t.Context(), m.prefix+"SYSTEM", "of the system"))
	t.Cleanup(func() { noError(t, m.Host.Environment.Unset(context.WithoutCancel(t.Context()), m.prefix+"SYSTEM")) })
	config := m.service(t, "Asks", order.Orders{Environment: path}, func(c *winos.ServiceConfig) {
		c.Environment = map[string]string{m.prefix + "OWN": "of the service", "PATHEXT": ".WMCO",
			m.prefix + "SYSTEM2": ""}
	})
	noError(t, m.Host.Environment.Set(t.Context(), m.prefix+"SYSTEM2", "of the system"))
	t.Cleanup(func() { noError(t, m.Host.Environment.Unset(context.WithoutCancel(t.Context()), m.prefix+"SYSTEM2")) })
	read := func() []string {
		m.start(t, config.Name)
		content, err := winos.ReadFile(m.Host.Files, path)
		noError(t, err)
		m.stop(t, config.Name)
		return strings.Split(strings.ReplaceAll(string(content), "\r\n", "\n"), "\n")
	}
	lines := read()
	for _, want := range []string{m.prefix + "OWN=of the service", "PATHEXT=.WMCO", m.prefix + "SYSTEM=of the system"} {
		if !slices.Contains(lines, want) {
			t.Errorf("the environment lacks %q", want)
		}
	}
	if slices.Contains(lines, m.prefix+"SYSTEM2=of the system") {
		t.Error("an empty variable does not override the system's variable")
	}
	config.Environment = nil
	noError(t, m.Host.Services.Apply(t.Context(), config))
	if slices.Contains(read(), m.prefix+"OWN=of the service") {
		t.Error("a variable that the service no longer has is still there")
	}
}

func serviceDeleted(m machine) {
	t := m.t
	config := m.service(t, "Deleted", order.Orders{}, nil)
	m.start(t, config.Name)
	isError(t, "deleting a running service", m.Host.Services.Delete(t.Context(), config.Name), winos.ErrInUse)
	if state := m.get(t, config.Name).State; state != winos.ServiceRunning {
		t.Errorf("after a deletion that was refused, the service is %s", state)
	}
	for range 3 {
		m.stop(t, config.Name)
		noError(t, m.Host.Services.Delete(t.Context(), config.Name))
		noError(t, m.Host.Services.Delete(t.Context(), config.Name))
		_, err := m.Host.Services.Get(t.Context(), config.Name)
		isError(t, "getting a deleted service", err, winos.ErrNotFound)
		noError(t, m.Host.Services.Apply(t.Context(), config))
		m.start(t, config.Name)
	}
}

func serviceDeletedAtStop(m machine) {
	t := m.t
	config := m.service(t, "Outlived", order.Orders{}, nil)
	m.start(t, config.Name)
	noError(t, m.Host.Services.DeleteAtStop(t.Context(), config.Name))
	noError(t, m.Host.Services.DeleteAtStop(t.Context(), config.Name))
	if state := m.get(t, config.Name).State; state != winos.ServiceRunning {
		t.Errorf("after its deletion was requested, the service is %s", state)
	}
	if err := m.Host.Services.Stop(t.Context(), config.Name); !errors.Is(err, winos.ErrNotFound) {
		noError(t, err)
	}
	eventually(t, "deleting", func() bool {
		_, err := m.Host.Services.Get(t.Context(), config.Name)
		return errors.Is(err, winos.ErrNotFound)
	})
	noError(t, m.Host.Services.Apply(t.Context(), config))
}

func serviceContext(m machine) {
	t := m.t
	config := m.service(t, "Ended", order.Orders{}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	changed := config
	changed.Description = "Changed after all."
	isError(t, "applying", m.Host.Services.Apply(ctx, changed), context.Canceled)
	isError(t, "starting", m.Host.Services.Start(ctx, config.Name), context.Canceled)
	isError(t, "deleting", m.Host.Services.Delete(ctx, config.Name), context.Canceled)
	service := m.get(t, config.Name)
	sameConfig(t, config, service.ServiceConfig)
	if service.State != winos.ServiceStopped {
		t.Errorf("the service is %s", service.State)
	}
}
