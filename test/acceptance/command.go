package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/kubectlwindows"
	"github.com/windows-nodes/wmco/internal/version"
)

// Exit codes.
const (
	exitShown    = 0
	exitError    = 1
	exitFailed   = 2
	exitLeftover = 3
	exitEarly    = 4
)

var (
	errFailed   = errors.New("rows failed")
	errLeftover = errors.New("something is left behind")
	errEarly    = errors.New("the run was interrupted")
)

// command holds the values of the command's flags.
type command struct {
	genericiooptions.IOStreams
	flags             *genericclioptions.ConfigFlags
	options           Options
	hosts, disrupt    []string
	lacks             map[string]string
	results           string
	cleanup, listRows bool
	// sonobuoy: the program runs as a plugin of Sonobuoy, and hands its results to Sonobuoy.
	sonobuoy bool
}

// Main runs the command and returns its exit code.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	root := newCommand(streams) //nolint:contextcheck // the command gets its context below
	root.SetArgs(args[1:])
	err := root.ExecuteContext(ctx)
	code := exitOf(err)
	if code == exitError {
		_, _ = fmt.Fprintln(streams.ErrOut, "error:", diagnosis.Visible(err.Error()))
	}
	return code
}

// exitOf returns the exit code for an error.
func exitOf(err error) int {
	for code, of := range map[int]error{exitShown: nil, exitFailed: errFailed, exitLeftover: errLeftover,
		exitEarly: errEarly} {
		if err == of { //nolint:errorlint // if it is joined with another error, the command fails
			return code
		}
	}
	return exitError
}

func newCommand(streams genericiooptions.IOStreams) *cobra.Command {
	c := &command{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true),
		options: Options{Evidence: none{}}}
	root := &cobra.Command{
		Use:   "wmco-e2e",
		Short: "Try the operator's acceptance list on a cluster of yours",
		Long: `Try the operator's acceptance list on a cluster of yours. The operator must be installed there, with
its private key. Each row is reported as shown, failed, or can't be shown here with the reason.

It lists the hosts that you name, and no others; at the end they leave again. What it makes has the
label ` + contract.ManagedByLabel + `=` + managedBy + `. Entries of windows-instances, nodes and settings
of others stay as they are, unless --disrupt allows more:

` + disruptionTable() + `
If it is killed, the next run, or --cleanup, removes what is left. Two runs at once are refused.

Exit codes: 0 nothing failed, 1 it could not begin: no cluster, no operator, a right is lacking;
2 rows failed, 3 nothing failed, but something is left behind, 4 nothing failed until it was interrupted.
The first Ctrl-C has it clean up; the second ends it at once.`,
		Example: `  # What there is to see without hosts, on nodes that are there
  wmco-e2e

  # Two hosts join, are looked at, leave, join again and leave
  wmco-e2e --host 10.0.0.7=username=Administrator --host win-8.example.com=username=Administrator

  # Also what others notice, with results in a directory
  wmco-e2e --host 10.0.0.7=username=Administrator --disrupt=entries,rollout,settings --results out

  # What could not be tried without Windows, with an archive of evidence
  wmco-e2e --first-hour --host 10.0.0.7=username=Administrator

  # A cluster without load balancer
  wmco-e2e --lacks loadbalancer="no load balancer in this lab"

  # Remove what a run left that was killed
  wmco-e2e --cleanup`,
		Version: version.Version(), SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	flags, usual := root.Flags(), Options{}.defaulted()
	flags.StringArrayVar(&c.hosts, "host", nil,
		"a host to list, as ADDRESS=username=NAME[,port=PORT][,hostKey=KEY]; may be repeated")
	flags.StringSliceVar(&c.disrupt, "disrupt", nil, "what may be disrupted in addition: "+
		strings.Join(disruptions(), ", "))
	flags.StringToStringVar(&c.lacks, "lacks", nil,
		fmt.Sprintf("features that the cluster does not have, each with the reason: %v", Needs()))
	flags.StringSliceVar(&c.options.Only, "rows", nil, "try these rows only, such as A02,A04")
	flags.StringVar(&c.results, "results", "wmco-e2e-results", "directory for junit.xml and index.html")
	flags.StringVar(&c.options.Image, "image", usual.Image,
		"agnhost, which rows with containers run, such as a copy in a registry of yours")
	flags.BoolVar(&c.options.NeverRun, "never-run", false,
		"try rows, too, that were written and have never been run")
	flags.BoolVar(&c.options.FirstHour, "first-hour", false,
		"try the page of the first run on real Windows, too, and rows that have never been run, on the hosts given; "+
			"what was found is put into an archive beside the results, without secrets")
	flags.StringVar(&c.options.HostImage, "host-image", usual.HostImage,
		"base image of HostProcess containers, in which --first-hour looks into hosts")
	flags.BoolVar(&c.sonobuoy, "sonobuoy", false,
		"hand the results to Sonobuoy, as one of its plugins does; --results has no meaning then")
	flags.BoolVar(&c.cleanup, "cleanup", false, "only remove what earlier runs left")
	flags.BoolVar(&c.listRows, "list", false, "only list the rows, and what a run can show of each")
	flags.DurationVar(&c.options.JoinTimeout, "join-timeout", usual.JoinTimeout,
		"how long a host may take to become a node")
	flags.DurationVar(&c.options.LeaveTimeout, "leave-timeout", usual.LeaveTimeout,
		"how long a host may take to leave")
	flags.DurationVar(&c.options.Timeout, "timeout", usual.Timeout, "how long everything else may take")
	flags.DurationVar(&c.options.Pace, "pace", usual.Pace, "how often to look at what is waited for")
	flags.StringVar(&c.options.Namespace, "operator-namespace", usual.Namespace, "namespace of the operator")
	for _, name := range []string{"kubeconfig", "context", "server", "as", "as-group"} {
		c.addFlag(root, name)
	}
	return root
}

// addFlag adds one of kubectl's connection flags.
func (c *command) addFlag(root *cobra.Command, name string) {
	all := cobra.Command{}
	c.flags.AddFlags(all.Flags())
	root.Flags().AddFlag(all.Flags().Lookup(name))
}

func disruptions() (names []string) {
	for _, d := range Disruptions() {
		names = append(names, d[0])
	}
	return names
}

func disruptionTable() string {
	var b strings.Builder
	for _, d := range Disruptions() {
		fmt.Fprintf(&b, "  %-9s %s\n", d[0], d[1])
	}
	return b.String()
}

// run executes the command.
func (c *command) run(ctx context.Context) error {
	if c.listRows {
		return c.list()
	}
	if !c.sonobuoy {
		return c.try(ctx)
	}
	c.results = filepath.Join(sonobuoyDirectory(), "results")
	err := errors.Join(c.makeResults(), c.try(ctx))
	if _, missing := os.Stat(filepath.Join(c.results, junitFile)); missing != nil && err != nil {
		err = errors.Join(err, c.write(notBegun(err)))
	}
	if lost := handOver(c.results, sonobuoyDirectory()); lost != nil {
		return errors.Join(err, lost)
	}
	return err
}

// try runs the rows and writes the results.
func (c *command) try(ctx context.Context) error {
	if err := c.complete(); err != nil {
		return err
	}
	if c.cleanup {
		return c.clean(ctx)
	}
	evidence, err := c.evidence()
	if err != nil {
		return err
	}
	report, err := Run(ctx, c.options)
	if err == nil {
		err = c.write(report)
	}
	if err = errors.Join(err, c.attach(evidence, report)); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(c.Out, "%s: %s\n", report.Summary(), filepath.Join(c.results, "index.html"))
	switch {
	case report.Count(Failed) > 0:
		return errFailed
	case report.Leftover != "":
		return errLeftover
	case report.Interrupted:
		return errEarly
	}
	return nil
}

// complete derives the run's options from the flags.
func (c *command) complete() error {
	for _, text := range c.hosts {
		host, err := ParseHost(text)
		if err != nil {
			return err
		}
		c.options.Hosts = append(c.options.Hosts, host)
	}
	for _, name := range c.disrupt {
		if !slices.Contains(disruptions(), name) {
			return fmt.Errorf("--disrupt is %q and must be of %s", name, strings.Join(disruptions(), ", "))
		}
		c.options.Disrupt = append(c.options.Disrupt, Disruption(name))
	}
	c.options.Lacks = map[Need]string{}
	for name, why := range c.lacks {
		if !slices.Contains(Needs(), Need(name)) {
			return fmt.Errorf("--lacks is %q and must be of %v", name, Needs())
		}
		c.options.Lacks[Need(name)] = why
	}
	c.options.NeverRun = c.options.NeverRun || c.options.FirstHour
	rows, err := c.options.rows()
	if err != nil {
		return err
	}
	for _, number := range c.options.Only {
		if !slices.ContainsFunc(rows, func(row Row) bool { return row.Number == number }) {
			return fmt.Errorf("--rows is %q, which is not in the list", number)
		}
	}
	c.options.Progress = c.ErrOut
	c.options = c.options.defaulted()
	if c.options.Config, err = c.flags.ToRESTConfig(); err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return nil
}

// list prints the rows.
func (c *command) list() error {
	rows, err := c.options.rows()
	if err != nil {
		return err
	}
	for _, row := range rows {
		what := row.shows
		switch {
		case row.try == nil:
			what = "can't be shown: " + row.why
		case what == "":
			what = "can be shown"
		default:
			what = "can be shown: " + what
		}
		if row.unrun {
			what += " (written, never run)"
		}
		if _, err = fmt.Fprintf(c.Out, "%s %s\n    %s\n", row.Number, row.Title, what); err != nil {
			return err
		}
	}
	return nil
}

func (c *command) clean(ctx context.Context) error {
	cleaned, err := Cleanup(ctx, c.options)
	for _, what := range cleaned {
		_, _ = fmt.Fprintln(c.Out, "removed", what)
	}
	if err == nil && len(cleaned) == 0 {
		_, _ = fmt.Fprintln(c.Out, "nothing was left")
	}
	return err
}

// evidence opens the archive for the results of a first run. Without a first run, it returns nil.
func (c *command) evidence() (*kubectlwindows.Evidence, error) {
	if !c.options.FirstHour {
		return nil, nil //nolint:nilnil // there is no archive
	}
	if err := c.makeResults(); err != nil {
		return nil, err
	}
	name := filepath.Join(c.results, "first-hour-"+time.Now().UTC().Format("20060102-150405")+".tar.gz")
	evidence, err := kubectlwindows.NewEvidence(c.flags, c.options.Namespace, name, c.ErrOut)
	if err == nil {
		c.options.Evidence = evidence
		_, _ = fmt.Fprintf(c.ErrOut, "collecting evidence in %s\n", name)
	}
	return evidence, err
}

// attach completes the archive. If the run could not begin, it deletes the archive.
func (c *command) attach(evidence *kubectlwindows.Evidence, report Report) error {
	switch {
	case evidence == nil:
		return nil
	case len(report.Results) == 0:
		_, _ = evidence.Close()
		return os.Remove(evidence.Name())
	}
	missing, err := evidence.Close()
	if err == nil {
		_, _ = fmt.Fprintf(c.Out, "evidence: %s; look through it before you give it away\n", evidence.Name())
	}
	if missing > 0 {
		_, _ = fmt.Fprintf(c.ErrOut,
			"%d parts of the evidence are missing: index.html in the archive lists them with the reasons\n",
			missing)
	}
	return err
}

func (c *command) makeResults() error {
	if err := os.MkdirAll(c.results, 0o755); err != nil { //nolint:gosec // later steps of a CI job read it
		return fmt.Errorf("creating the directory of results: %w", err)
	}
	return nil
}

// write writes the results, and adds them to the archive.
func (c *command) write(report Report) error {
	if err := c.makeResults(); err != nil {
		return err
	}
	for name, render := range report.files() {
		var text bytes.Buffer
		if err := render(&text); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		path := filepath.Join(c.results, name)
		// Everyone may read the results, because later steps of a CI job read them.
		if err := os.WriteFile(path, text.Bytes(), 0o666); err != nil { //nolint:gosec // see above
			return fmt.Errorf("writing results: %w", err)
		}
		c.options.Evidence.Add("results/"+name, text.Bytes())
	}
	return nil
}
