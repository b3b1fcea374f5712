package main

import (
	"context"
	"fmt"

	"golang.org/x/sys/windows/svc"

	"github.com/windows-nodes/wmco/internal/daemon/loop"
)

// runService calls the function `run` under the service manager. If run returns an error, the service ends with a
// service-specific exit code, so that the service manager applies the service's recovery settings.
func runService(ctx context.Context, name string, run func(ctx context.Context, running func()) error) error {
	h := &handler{ctx: func() context.Context { return ctx }, run: run}
	if err := svc.Run(name, h); err != nil {
		return fmt.Errorf("running as service %s: %w", name, err)
	}
	return h.err
}

type handler struct {
	// ctx returns the context of the process, because svc.Handler has no parameter for one.
	ctx func() context.Context
	run func(ctx context.Context, running func()) error
	err error
}

var _ svc.Handler = (*handler)(nil)

// failed is the service-specific exit code if the service ended with an error. The log contains the error.
const failed = 1

func (h *handler) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool,
	code uint32) {
	ctx, cancel := context.WithCancel(h.ctx())
	defer cancel()
	status <- svc.Status{State: svc.StartPending}
	up := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- h.run(ctx, func() { loop.Signal(up) })
	}()
	current := svc.Status{State: svc.StartPending}
	for {
		select {
		case <-up:
			current = svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
			status <- current
		case request := <-requests:
			switch request.Cmd {
			case svc.Interrogate:
				status <- current
			case svc.Stop, svc.Shutdown:
				current = svc.Status{State: svc.StopPending}
				status <- current
				cancel()
			}
		case h.err = <-done:
			if h.err != nil {
				return true, failed
			}
			return false, 0
		}
	}
}
