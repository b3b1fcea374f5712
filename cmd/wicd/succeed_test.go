package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// scm is a service manager with one service.
type scm struct {
	winos.Services

	mu      sync.Mutex
	state   winos.ServiceState
	gone    bool
	starts  int
	refuses int
}

func (s *scm) Get(context.Context, string) (winos.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return winos.Service{}, winos.ErrNotFound
	}
	return winos.Service{State: s.state}, nil
}

func (s *scm) Start(context.Context, string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts++
	if s.starts <= s.refuses {
		return winos.ErrStartFailed
	}
	s.state = winos.ServiceRunning
	return nil
}

func TestASuccessorStartsTheServiceWhenNobodyElseDoes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		manager  *scm
		restarts time.Duration // when the service manager starts it by itself
		starts   int
		fails    bool
	}{
		"the service manager starts it": {&scm{state: winos.ServiceStopped}, time.Second, 0, false},
		"the service manager does not":  {&scm{state: winos.ServiceStopped}, 0, 1, false},
		"it does not start at once":     {&scm{state: winos.ServiceStopped, refuses: 2}, 0, 3, false},
		"it never starts": {&scm{state: winos.ServiceStopped, refuses: 1 << 20}, 0, 1,
			true},
		"the host has left the cluster": {&scm{gone: true}, 0, 0, false},
		"the service manager is about to start it": {&scm{state: winos.ServiceStartPending}, 20 * time.Second, 0,
			false},
		"the old one is still about to stop, and does": {&scm{state: winos.ServiceStopPending}, 8 * time.Second, 0,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if test.restarts > 0 {
					time.AfterFunc(test.restarts, func() {
						test.manager.mu.Lock()
						defer test.manager.mu.Unlock()
						test.manager.state = winos.ServiceRunning
					})
				}
				err := newSuccessor(test.manager).run(t.Context(), "service")
				if test.fails != (err != nil) || test.fails && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("it answers %v", err)
				}
				if got := test.manager.starts; got < test.starts || test.starts == 0 && got > 0 {
					t.Errorf("it was started %d times, want %d", got, test.starts)
				}
			})
		})
	}
}
