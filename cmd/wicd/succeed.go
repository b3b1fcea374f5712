package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// succeedVerb is what a daemon whose program was replaced starts that program with, last of all.
const succeedVerb = "succeed"

// successor sees to it that the service runs again after its program was replaced. The service
// manager does that by itself, a second after the old process ended, as its recovery settings say:
// then there is nothing to do. It does not where somebody took those settings away, or where it
// ignores them, as Wine's does; then the host would have no daemon until the operator joins it
// again.
type successor struct {
	services winos.Services
	// grace is how long the service manager has, limit how long all may take, and pause lies
	// between two looks.
	grace, limit, pause time.Duration
}

func newSuccessor(services winos.Services) successor {
	return successor{services: services, grace: 5 * time.Second, limit: 2 * time.Minute, pause: 500 * time.Millisecond}
}

func newSucceed(services winos.Services) *cobra.Command {
	return &cobra.Command{
		Use: succeedVerb, Short: "Start the service unless the service manager does; the service itself runs this",
		Hidden: true, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return newSuccessor(services).run(command.Context(), contract.ServiceDaemon)
		},
	}
}

// run returns when the service runs, or is gone. Repeating it changes nothing.
func (s successor) run(ctx context.Context, service string) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	grace := time.NewTimer(s.grace)
	defer grace.Stop()
	look := time.NewTicker(s.pause)
	defer look.Stop()
	over := false
	for {
		found, err := s.services.Get(ctx, service)
		switch {
		case errors.Is(err, winos.ErrNotFound), err == nil && found.State == winos.ServiceRunning:
			return nil
		case err == nil && found.State == winos.ServiceStopped && over:
			if err = s.services.Start(ctx, service); err == nil {
				return nil
			}
		}
		select {
		case <-grace.C:
			over = true
		case <-look.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting for service %s to run again: %w", service, context.Cause(ctx)), err)
		}
	}
}
