package winos

import (
	"errors"
	"strings"
	"testing"
)

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
