package main

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/windows/svc"
)

// manager simulates the service manager's side of a service.
type manager struct {
	requests chan svc.ChangeRequest
	status   chan svc.Status
	ended    chan uint32
}

// launch starts a service, which runs until it ends by itself.
func launch(ctx context.Context, run func(ctx context.Context, running func()) error) manager {
	m := manager{requests: make(chan svc.ChangeRequest), status: make(chan svc.Status, 10), ended: make(chan uint32, 1)}
	go func() {
		h := &handler{ctx: func() context.Context { return ctx }, run: run}
		specific, code := h.Execute(nil, m.requests, m.status)
		if specific != (h.err != nil) {
			code = ^uint32(0)
		}
		m.ended <- code
	}()
	return m
}

func (m manager) expect(t *testing.T, states ...svc.State) {
	t.Helper()
	for _, want := range states {
		if got := <-m.status; got.State != want {
			t.Fatalf("state %d, want %d", got.State, want)
		}
	}
}

// serveUntilStopped reports at once that the service is running.
func serveUntilStopped(ctx context.Context, running func()) error {
	running()
	running() // a second call has no effect
	<-ctx.Done()
	return nil
}

func TestAServiceRunsAndStops(t *testing.T) {
	t.Parallel()
	m := launch(t.Context(), serveUntilStopped)
	m.expect(t, svc.StartPending, svc.Running)
	m.requests <- svc.ChangeRequest{Cmd: svc.Interrogate}
	m.requests <- svc.ChangeRequest{Cmd: svc.Stop}
	if code := <-m.ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAServiceStopsWhenTheMachineShutsDown(t *testing.T) {
	t.Parallel()
	m := launch(t.Context(), serveUntilStopped)
	m.expect(t, svc.StartPending, svc.Running)
	m.requests <- svc.ChangeRequest{Cmd: svc.Shutdown}
	if code := <-m.ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAServiceThatFailsSaysSoToItsManager(t *testing.T) {
	t.Parallel()
	m := launch(t.Context(), func(context.Context, func()) error { return errors.New("broken") })
	m.expect(t, svc.StartPending)
	if code := <-m.ended; code != failed {
		t.Errorf("exit code %d, want %d", code, failed)
	}
}

func TestHomeIsAboveTheRPCDirectory(t *testing.T) {
	t.Parallel()
	for self, want := range map[string]string{
		`C:\Users\me\.wmco\wicd-0123.exe`: `C:\Users\me`, `c:\users\me\.WMCO\wicd-0123.exe`: `c:\users\me`,
	} {
		if got := home(self); got != want {
			t.Errorf("the home directory for %s is %q, want %q", self, got, want)
		}
	}
}
