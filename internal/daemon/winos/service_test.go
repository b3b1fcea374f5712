package winos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestARequestToStopThatIsNotAnsweredIsNoStartThatFailed(t *testing.T) {
	t.Parallel()
	others := errors.New("others")
	for code, want := range map[uint32]error{0: nil, 1062: others} {
		if got := stopError("kubelet", code, want); !errors.Is(got, want) {
			t.Errorf("code %d means %v, not %v", code, got, want)
		}
	}
	var silent UnansweredError
	err := stopError("kubelet", 1053, ErrStartFailed)
	if !errors.As(err, &silent) || silent.Service != "kubelet" || !errors.Is(err, ErrInUse) ||
		errors.Is(err, ErrStartFailed) {
		t.Errorf("a time limit that is over: %v", err)
	}
	err = stopError("kubelet", 0, fmt.Errorf("sending control 1: %w", context.DeadlineExceeded))
	if !errors.As(err, &silent) || silent.Service != "kubelet" || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a service manager that does not answer: %v", err)
	}
}

// The service manager may also answer several times that a service can't accept a request at this moment.
func TestAServiceThatRunsWhenTheTimeOfItsStopIsOverHasNotAnswered(t *testing.T) {
	t.Parallel()
	for state, want := range map[ServiceState]bool{ServiceRunning: true, ServicePaused: true, ServiceStopPending: false,
		ServiceStartPending: false} {
		err := unfinished("kubelet", state)
		if silent := (UnansweredError{}); errors.As(err, &silent) != want || !errors.Is(err, ErrInUse) {
			t.Errorf("a service in the state %s gives %v", state, err)
		}
	}
}

func TestServicesThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	good := ServiceConfig{Name: "kubelet", Command: `C:\k\kubelet.exe`, Dependencies: []string{"containerd"}}
	if err := checkServiceConfig(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*ServiceConfig){
		"no name":                  func(c *ServiceConfig) { c.Name = "" },
		"a backslash in the name":  func(c *ServiceConfig) { c.Name = `a\..\b` },
		"a slash in the name":      func(c *ServiceConfig) { c.Name = "a/b" },
		"a name that is too long":  func(c *ServiceConfig) { c.Name = strings.Repeat("x", 257) },
		"no command":               func(c *ServiceConfig) { c.Command = " " },
		"NUL in the command":       func(c *ServiceConfig) { c.Command += "\x00" },
		"NUL in the description":   func(c *ServiceConfig) { c.Description = "\x00" },
		"a dependency on no name":  func(c *ServiceConfig) { c.Dependencies = []string{""} },
		"a dependency with slashs": func(c *ServiceConfig) { c.Dependencies = []string{`a\b`} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := good
			change(&config)
			if err := checkServiceConfig(config); !errors.Is(err, ErrInvalidName) {
				t.Errorf("got %v, want ErrInvalidName", err)
			}
		})
	}
}

func TestStatesOfTheServiceManagerHaveNames(t *testing.T) {
	t.Parallel()
	want := []ServiceState{"Unknown(0)", ServiceStopped, ServiceStartPending, ServiceStopPending, ServiceRunning,
		ServiceStartPending, ServicePaused, ServicePaused, "Unknown(8)"}
	for code, state := range want {
		if got := serviceState(uint32(code)); got != state {
			t.Errorf("state %d is %s, want %s", code, got, state)
		}
	}
}
