package verbs

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
)

func watchdogCommand(o Options) *cobra.Command {
	var windowsService bool
	cmd := &cobra.Command{
		Use: selfupdate.Verb, Short: "Restore this daemon unless the new one comes up; the service manager runs this",
		Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !windowsService {
				return runWatchdog(cmd.Context(), o, o.Running)
			}
			watch := func(ctx context.Context, running func()) error { return runWatchdog(ctx, o, running) }
			return o.RunService(cmd.Context(), contract.ServiceWatchdog, watch)
		},
	}
	cmd.Flags().BoolVar(&windowsService, "windows-service", false, "run under the Windows service manager")
	return cmd
}

func runWatchdog(ctx context.Context, o Options, running func()) error {
	return logged(ctx, o, "watchdog.log", func(ctx context.Context) error {
		running()
		return selfupdate.Watchdog{Host: o.Host, Self: o.Self, Intervals: o.Watchdog}.Run(ctx)
	})
}

// logged runs a service with a log of its own, if need be without one: a disk may be full.
func logged(ctx context.Context, o Options, name string, run func(context.Context) error) error {
	s := service{logDir: contract.DirDaemonLog}
	log := s.logger(o, name)
	defer func() { _ = log.close() }()
	err := run(logr.NewContext(ctx, log.Logger))
	if err != nil {
		log.Error(err, "ended") // nobody sees a service's standard error
	}
	return err
}
