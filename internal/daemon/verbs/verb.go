package verbs

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/internal/contract"
)

// verbLimit limits the time of a verb, so that a verb that hangs doesn't block the next verb. Enabling a Windows
// feature takes longest. The verb receive has the longer limit fetchLimit, because the payload server may be slow.
const (
	verbLimit  = 20 * time.Minute
	fetchLimit = time.Hour
)

func verbs(o Options) []*cobra.Command {
	return []*cobra.Command{
		verb(o, contract.VerbPreflight, "Look whether this machine can become a node; changes nothing",
			func(ctx context.Context, r contract.PreflightRequest) (contract.PreflightAnswer, error) {
				return Preflight(ctx, o.Host, o.Self, r)
			}),
		verb(o, contract.VerbPrepare, "Set the host name and switch on Windows features; may reboot",
			inTurn(o, func(ctx context.Context, r contract.PrepareRequest) (contract.PrepareAnswer, error) {
				return Prepare(ctx, o.Host, r)
			})),
		verb(o, contract.VerbReceive, "Unpack or fetch, verify and store programs",
			inTurn(o, func(ctx context.Context, r contract.ReceiveRequest) (contract.ReceiveAnswer, error) {
				return Receive(ctx, o.Host, o.HomeDir, r)
			})),
		verb(o, contract.VerbBootstrap, "Write files, start containerd and kubelet, and ask for the daemon's "+
			"certificate",
			inTurn(o, func(ctx context.Context, r contract.BootstrapRequest) (contract.BootstrapAnswer, error) {
				return Bootstrap(ctx, o.Host, o.Self, r)
			})),
		verb(o, contract.VerbHandover, "Store the daemon's certificate, and install and start the service",
			inTurn(o, func(ctx context.Context, r contract.HandoverRequest) (contract.HandoverAnswer, error) {
				return Handover(ctx, o.Host, o.Self, r)
			})),
		verb(o, contract.VerbCleanup, "Take everything away that was installed, and put back what was",
			func(ctx context.Context, r contract.CleanupRequest) (contract.CleanupAnswer, error) {
				if involved, err := isInvolved(ctx, o.Host, r); err != nil || !involved {
					return contract.CleanupAnswer{Removed: []string{}}, err
				}
				if err := mistaken(ctx, o.Host, r); err != nil {
					return contract.CleanupAnswer{}, err
				}
				return CleanupDetached(ctx, o.Host, Where{Home: o.HomeDir, Self: o.Self})
			}),
	}
}

// inTurn returns a function that calls `run` while no other verb runs. First, it removes the one-shot service of a
// cleanup. Otherwise that service would clean the host later.
func inTurn[Request, Result any](o Options,
	run func(context.Context, Request) (Result, error)) func(context.Context, Request) (Result, error) {
	return func(ctx context.Context, request Request) (result Result, err error) {
		release, err := takeTurn(ctx, o.Host.Programs)
		if err != nil {
			return result, err
		}
		defer func() { err = errors.Join(err, release()) }()
		if err = withdrawCleanup(ctx, o.Host.Services); err != nil {
			return result, err
		}
		return run(ctx, request)
	}
}

// cleanupCommand returns the command of the one-shot service that cleans the host.
func cleanupCommand(o Options) *cobra.Command {
	where := Where{Home: o.HomeDir, Self: o.Self}
	cmd := &cobra.Command{
		Use: cleanupVerb, Short: "Clean this host as a service that outlives the call; the service manager runs this",
		Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.RunService(cmd.Context(), contract.ServiceCleanup,
				func(ctx context.Context, running func()) error {
					ctx, cancel := context.WithTimeout(ctx, verbLimit)
					defer cancel()
					running()
					return logged(ctx, o, contract.DirDaemonLog+`\cleanup.log`, func(ctx context.Context) error {
						if where.Released {
							return serveRelease(ctx, o.Host, where)
						}
						return serveCleanup(ctx, o.Host, where)
					})
				})
		},
	}
	cmd.Flags().BoolVar(&where.Released, strings.TrimPrefix(released, "--"), false,
		"clean a host that the operator has released; no answer is written")
	return cmd
}

// `logged` calls `run` with a logger that writes to the file at path. It calls `run` even without this file.
func logged(ctx context.Context, o Options, path string, run func(context.Context) error) error {
	log := newJournal(o, path)
	defer func() { _ = log.writer.Close() }()
	err := run(logr.NewContext(ctx, log.Logger))
	if err != nil {
		log.Error(err, "ended") // the standard error of a service is lost
	}
	return err
}

func verb[Request, Result any](o Options, name contract.Verb, short string,
	run func(context.Context, Request) (Result, error)) *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use: string(name), Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limit := verbLimit
			if name == contract.VerbReceive {
				limit = fetchLimit
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			channel := Streams(cmd.InOrStdin(), cmd.OutOrStdout())
			if cmd.Flags().Changed("rpc") {
				var err error
				if channel, err = RPCDir(o.Host.Files, o.HomeDir, id); err != nil {
					return err
				}
			}
			return Serve(logr.NewContext(ctx, o.Logger.WithValues("verb", name)), channel, run)
		},
	}
	cmd.Flags().StringVar(&id, "rpc", "", "read the request from and leave the answer in the RPC "+
		"directory, under this `id`")
	return cmd
}
