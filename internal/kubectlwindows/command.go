package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/util/term"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/version"
)

// Exit codes. exitUnhealthy means that the command succeeded and found a problem.
const (
	exitHealthy   = 0
	exitError     = 1
	exitUnhealthy = 2
)

// completer is the program's name when kubectl runs the plugin to complete arguments.
const completer = "kubectl_complete-windows"

// errUnhealthy makes the plugin exit with exitUnhealthy.
var errUnhealthy = errors.New("there is a problem")

type plugin struct {
	genericiooptions.IOStreams
	flags *genericclioptions.ConfigFlags
	// operator is the operator's namespace.
	operator string
	output   string
	// watch updates the output until Ctrl-C.
	watch bool
	now   func() time.Time
}

// Run runs the plugin and returns the exit code. The first argument is the path of the program.
func Run(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	root := newCommand(streams, time.Now) //nolint:contextcheck // commands get their context from ExecuteContext
	arguments := args[1:]
	name, _, _ := strings.Cut(filepath.Base(args[0]), ".") // without .exe
	if name == completer {
		arguments = append([]string{cobra.ShellCompRequestCmd}, arguments...)
	}
	root.SetArgs(arguments)
	switch err := root.ExecuteContext(ctx); {
	case errors.Is(err, errUnhealthy):
		return exitUnhealthy
	case err != nil:
		_, _ = fmt.Fprintln(streams.ErrOut, "error:", diagnosis.Visible(err.Error()))
		return exitError
	}
	return exitHealthy
}

func newCommand(streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	p := &plugin{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), now: now}
	p.flags.Timeout = new("30s")
	root := &cobra.Command{
		Use:   "kubectl-windows",
		Short: "Inspect, add and remove Windows nodes and their hosts",
		Long: `Inspect Windows nodes and their hosts, find out why something waits or fails, and add or remove
hosts.

The plugin has the rights of your kubeconfig, and does not contact hosts. Every request ends after
--request-timeout, which is 30 seconds by default.

Exit codes: 0 everything is healthy, 1 the command failed, 2 the command succeeded and found a problem:
a host that fails, an error in a manifest, a pod that can't run.`,
		Example: `  # Show all hosts and the rollout
  kubectl windows status

  # Find out what is wrong with a host, node or pod
  kubectl windows why 10.0.0.7

  # Find what in a manifest won't run on Windows
  kubectl windows lint deployment.yaml`,
		Version: version.Version(), SilenceUsage: true, SilenceErrors: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl windows"},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	p.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&p.operator, "operator-namespace", contract.OperatorNamespace,
		"namespace of the operator and its WindowsInstances")
	root.AddCommand(p.statusCommand(), p.whyCommand(), p.lintCommand(), p.addCommand(), p.removeCommand(),
		p.pauseCommand(true), p.pauseCommand(false), p.rebootCommand(), p.logsCommand(), p.drainCommand(),
		p.bundleCommand(), p.preflightCommand())
	return root
}

func (p *plugin) outputFlag(command *cobra.Command, formats ...string) {
	command.Flags().StringVarP(&p.output, "output", "o", "", "output format: "+strings.Join(formats, ", "))
	_ = command.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	command.PreRunE = func(*cobra.Command, []string) error {
		if p.output == "" || slices.Contains(formats, p.output) {
			return nil
		}
		return fmt.Errorf("--output is %q and must be %s", p.output, strings.Join(formats, ", "))
	}
}

func (p *plugin) style() diagnosis.Style {
	style := diagnosis.Style{Now: p.now(), Wide: p.output == "wide", Bars: p.watch,
		Color: printers.AllowsColorOutput(p.Out)}
	if size := (term.TTY{Out: p.Out}).GetSize(); size != nil {
		style.Width = int(size.Width)
	}
	return style
}
