package verbs

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
)

func guardCommand(o Options) *cobra.Command {
	var windowsService bool
	cmd := &cobra.Command{
		Use: selfupdate.Verb, Short: "Restore this daemon unless the new one comes up; the service manager runs this",
		Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !windowsService {
				return runWatchdog(cmd.Context(), o, o.Running)
			}
			return o.RunService(cmd.Context(), contract.ServiceGuard, func(ctx context.Context, running func()) error {
				return runWatchdog(ctx, o, running)
			})
		},
	}
	cmd.Flags().BoolVar(&windowsService, "windows-service", false, "run under the Windows service manager")
	return cmd
}

// runWatchdog is the rollback watchdog, if need be without a log: a disk may be full.
func runWatchdog(ctx context.Context, o Options, running func()) error {
	s := service{logDir: contract.DirLog + `\wicd`}
	if log, err := s.logger(o, "guard.log"); err == nil {
		defer func() { _ = log.close() }()
		ctx = logr.NewContext(ctx, log.Logger)
	}
	running()
	return selfupdate.Watchdog{Host: o.Host, Self: o.Self, Intervals: o.Watchdog}.Run(ctx)
}
