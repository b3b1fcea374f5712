package winos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/windows"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// newService names a service of this test and removes it afterwards.
func newService(t *testing.T, suffix string) string {
	t.Helper()
	name := fmt.Sprintf("winos-test-%d-%s", time.Now().UnixNano()%1e9, suffix)
	t.Cleanup(func() {
		services := winos.New().Services
		ctx := context.WithoutCancel(t.Context())
		if err := services.Stop(ctx, name); err != nil && !errors.Is(err, winos.ErrNotFound) {
			t.Errorf("cleaning up: %v", err)
		}
		if err := services.Delete(ctx, name); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return name
}

func apply(t *testing.T, config winos.ServiceConfig) {
	t.Helper()
	if err := winos.New().Services.Apply(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

func TestAServicesConfigurationIsReadBackAsItWasApplied(t *testing.T) {
	services := winos.New().Services
	name, other := newService(t, "config"), newService(t, "needed")
	apply(t, winos.ServiceConfig{Name: other, Command: serviceCommand(t, "plain")})
	want := winos.ServiceConfig{
		Name:          name,
		Description:   "OpenShift managed test – ü",
		Command:       serviceCommand(t, "plain"),
		Dependencies:  []string{other},
		Environment:   map[string]string{"HTTP_PROXY": "http://proxy:3128", "Empty": ""},
		Recovery:      []time.Duration{10 * time.Second, 30 * time.Second, 1500 * time.Millisecond},
		RecoveryReset: 5 * time.Minute,
	}
	for _, change := range []func(){
		func() {},
		func() {}, // again, as it is
		func() { want.Dependencies = nil },
		func() { want.Environment = nil },
		func() { want.Recovery, want.RecoveryReset = nil, 0 },
		func() { want.Description = "" },
		func() { want.Command = serviceCommand(t, "linger") },
	} {
		change()
		apply(t, want)
		got, err := services.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if onWine() { // takes recovery actions, but can't be asked for them
			got.Recovery, got.RecoveryReset = want.Recovery, want.RecoveryReset
		}
		if fmt.Sprint(got.ServiceConfig) != fmt.Sprint(want) {
			t.Errorf("got  %v\nwant %v", got.ServiceConfig, want)
		}
		if got.State != winos.ServiceStopped || got.PID != 0 {
			t.Errorf("state %s, PID %d; applying must not start it", got.State, got.PID)
		}
	}
	names, err := services.List(t.Context())
	if err != nil || !slices.Contains(names, name) || !slices.Contains(names, other) {
		t.Errorf("List = %v, %v; want %s and %s in it", names, err, name, other)
	}
}

func TestStartReturnsWhenAServiceRunsAndStopWhenItsProcessHasEnded(t *testing.T) {
	for _, kind := range []string{"plain", "slow", "linger"} {
		t.Run(kind, func(t *testing.T) {
			services := winos.New().Services
			name := newService(t, kind)
			apply(t, winos.ServiceConfig{Name: name, Command: serviceCommand(t, kind)})
			for range 2 { // a service that runs is left alone
				if err := services.Start(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
			running, err := services.Get(t.Context(), name)
			if err != nil || running.State != winos.ServiceRunning || running.PID == 0 {
				t.Fatalf("Get = %+v, %v; want it running", running, err)
			}
			process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, running.PID)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = windows.CloseHandle(process) }()
			if err := services.Stop(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			if event, err := windows.WaitForSingleObject(process, 0); err != nil || event != windows.WAIT_OBJECT_0 {
				t.Errorf("its process has not ended after Stop (%d, %v)", event, err)
			}
			if err := services.Stop(t.Context(), name); err != nil {
				t.Errorf("Stop of a stopped service: %v", err)
			}
		})
	}
}

func TestStopStopsThoseThatNeedTheService(t *testing.T) {
	services := winos.New().Services
	base, middle, top := newService(t, "base"), newService(t, "middle"), newService(t, "top")
	apply(t, winos.ServiceConfig{Name: base, Command: serviceCommand(t, "plain")})
	apply(t, winos.ServiceConfig{Name: middle, Command: serviceCommand(t, "plain"), Dependencies: []string{base}})
	apply(t, winos.ServiceConfig{Name: top, Command: serviceCommand(t, "plain"), Dependencies: []string{middle}})
	if err := services.Start(t.Context(), top); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{base, middle, top} {
		if got, err := services.Get(t.Context(), name); err != nil || got.State != winos.ServiceRunning {
			t.Errorf("%s is %s, %v; want it started as a dependency", name, got.State, err)
		}
	}
	if err := services.Stop(t.Context(), base); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{base, middle, top} {
		if got, err := services.Get(t.Context(), name); err != nil || got.State != winos.ServiceStopped {
			t.Errorf("%s is %s, %v; want it stopped", name, got.State, err)
		}
	}
}

func TestStartSaysThatAServiceDidNotStart(t *testing.T) {
	for kind, command := range map[string]string{
		"its program fails":        serviceCommand(t, "fail"),
		"its process ends at once": serviceCommand(t, "crash"),
		"its exe does not exist":   `C:\winos-test\absent.exe`,
	} {
		t.Run(kind, func(t *testing.T) {
			name := newService(t, "failing")
			apply(t, winos.ServiceConfig{Name: name, Command: command})
			if err := winos.New().Services.Start(t.Context(), name); !errors.Is(err, winos.ErrStartFailed) {
				t.Errorf("Start: %v; want ErrStartFailed", err)
			}
		})
	}
}

func TestADeletedServiceIsGoneAndMayComeBack(t *testing.T) {
	services := winos.New().Services
	name := newService(t, "deleted")
	config := winos.ServiceConfig{Name: name, Command: serviceCommand(t, "plain")}
	for range 3 {
		apply(t, config)
		if err := services.Start(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := services.Delete(t.Context(), name); !errors.Is(err, winos.ErrInUse) {
			t.Errorf("Delete of a running service: %v; want ErrInUse", err)
		}
		if err := services.Stop(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := services.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := services.Get(t.Context(), name); !errors.Is(err, winos.ErrNotFound) {
			t.Errorf("Get: %v; want ErrNotFound", err)
		}
	}
	for doing, err := range map[string]error{
		"Start": services.Start(t.Context(), name),
		"Stop":  services.Stop(t.Context(), name),
	} {
		if !errors.Is(err, winos.ErrNotFound) {
			t.Errorf("%s: %v; want ErrNotFound", doing, err)
		}
	}
}
