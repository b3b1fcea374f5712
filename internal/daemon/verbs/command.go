package verbs

import (
	"context"
	"fmt"
	"io"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/attend"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/report"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Options are the inputs of the program.
type Options struct {
	Host    winos.Host
	Version string
	// HomeDir is the user's home directory on the machine. It contains the RPC directory.
	HomeDir string
	// Self is the absolute path of the running exe on the machine.
	Self           string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Logger is the logger of the verbs. A zero Logger discards the log. The service logs to its own file instead.
	Logger logr.Logger
	// RunService calls `run` as a Windows service. To stop the service, it cancels the context of `run`.
	RunService func(ctx context.Context, name string, run func(ctx context.Context, running func()) error) error
	// Intervals and Pace are time limits of the services. Their zero values are right for production.
	Intervals reconcile.Intervals
	Pace      attend.Pace
}

// New returns the command tree. If a command returns an error, the program must end with a non-zero exit code. If a
// verb has written an answer, the command succeeds, even if the answer contains a problem.
func New(options Options) *cobra.Command {
	options.Host = winos.WithTimeouts(options.Host)
	root := &cobra.Command{
		Use:   contract.ServiceDaemon,
		Short: "Make this Windows machine a Kubernetes node and keep it one",
		Long: `This program runs on a Windows machine that is, or is to become, a node of a cluster.

The Windows Machine Config Operator calls its verbs over SSH, in this order:

  preflight   check whether the machine can become a node, and what it lacks; changes nothing
  prepare     set host name and Windows features; may reboot
  receive     unpack the programs that were sent; on a host without SSH, fetch them
  bootstrap   start containerd and kubelet
  handover    install this program as a service, which does the rest
  cleanup     remove everything again

On a host without SSH, "attend" installs a service that carries out the same calls, which it finds in the cluster.

"report" prints what state this node is in; the service writes the same to ` + contract.PathReport + `.

Each reads a request and leaves an answer, both in JSON. With --rpc <id> they are the
files <id>.req.json and <id>.ans.json in the directory ` + contract.RPCDir + ` of the home directory;
without it they are standard input and output, for use by hand:

  windows-instance-config-daemon preflight < NUL

The service itself is "controller". It watches its own Node, reads the services manifest of the
Node's desired revision, and keeps services, files and environment as the manifest says.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetIn(options.Stdin)
	root.SetOut(options.Stdout)
	root.SetErr(options.Stderr)
	root.AddCommand(verbs(options)...)
	root.AddCommand(attendCommands(options)...)
	root.AddCommand(controllerCommand(options), cleanupCommand(options), reportCommand(options),
		versionCommand(options))
	return root
}

// attendCommands returns the command that joins a host without SSH, and the command of the service that it installs.
func attendCommands(o Options) []*cobra.Command {
	options := attend.Options{Host: o.Host, Version: o.Version, Dir: RPCPath(o.HomeDir), Self: o.Self, Pace: o.Pace,
		Clock: hostClock{system: o.Host.System}}
	return []*cobra.Command{
		{
			Use: "attend", Short: "Join this machine to the cluster whose settings are on standard input",
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return attend.Attend(cmd.Context(), options, cmd.InOrStdin(), cmd.OutOrStdout())
			},
		},
		{
			Use: attend.ServiceCommand, Short: "Carry out the operator's calls; the service manager runs this",
			Hidden: true, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return o.RunService(cmd.Context(), contract.ServiceAttend,
					func(ctx context.Context, running func()) error {
						running()
						err := logged(ctx, o, options.Dir+`\`+attend.LogFile, func(ctx context.Context) error {
							return attend.Serve(ctx, options)
						})
						if err == nil && ctx.Err() == nil { // Serve has removed the service
							err = attend.Clear(ctx, options)
						}
						return err
					})
			},
		},
	}
}

func reportCommand(options Options) *cobra.Command {
	return &cobra.Command{
		Use: "report", Short: "Print what state this node is in, as JSON without secrets; changes nothing",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), verbLimit)
			defer cancel()
			found := report.Look(ctx, options.Host, options.Version)
			found.Reconciled = report.Last(options.Host.Files)
			text, err := report.Encode(found)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

func versionCommand(options Options) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), options.Version)
			return err
		},
	}
}
