package kubectlwindows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

const (
	defaultLogBytes = 1 << 20
	defaultLimit    = 512 << 20
	defaultTimeout  = 10 * time.Minute
)

// bundleOptions limit the content of a bundle.
type bundleOptions struct {
	file            string
	nodes           []string
	logBytes, limit int64
	timeout         time.Duration
}

func (p *plugin) bundleCommand() *cobra.Command {
	var o bundleOptions
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what support needs into one archive, without secrets",
		Long: `Collect objects, events, the operator's logs, and the logs of nodes and the reports of their daemons
into one archive, with a page index.html to begin with. Data of nodes comes through kubelet. If a node
does not answer, only its part is missing.

Secrets are not read. Private keys, tokens, passwords in URLs and after names of passwords, and values
of variables and of unknown annotations are replaced by [redacted]. Names and addresses of hosts stay. Look
through the archive before you give it away.

Ctrl-C ends collecting; the archive has what was collected by then. Until it is whole its name ends in
.partial.`,
		Example: `  kubectl windows bundle
  kubectl windows bundle --nodes win-7,win-8 --file case-42.tar.gz`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			if o.file == "" {
				o.file = "windows-bundle-" + p.now().UTC().Format("20060102-150405") + ".tar.gz"
			}
			return p.bundle(command.Context(), o)
		},
	}
	command.Flags().StringVar(&o.file, "file", "", "archive to make; by default it has the time in its name")
	command.Flags().StringSliceVar(&o.nodes, "nodes", nil, "nodes whose logs are collected; all by default")
	command.Flags().Int64Var(&o.logBytes, "log-bytes", defaultLogBytes, "how much of the end of each log is collected")
	command.Flags().Int64Var(&o.limit, "max-bytes", defaultLimit,
		"how much is collected altogether, before compression")
	command.Flags().DurationVar(&o.timeout, "timeout", defaultTimeout, "how long it may take")
	return command
}

// bundle writes the archive. Its index names the parts that couldn't be read.
func (p *plugin) bundle(ctx context.Context, o bundleOptions) error {
	if o.logBytes <= 0 || o.logBytes > maxLog {
		return fmt.Errorf("--log-bytes is %d and must be from 1 to %d", o.logBytes, maxLog)
	}
	r, err := p.connect()
	if err != nil {
		return err
	}
	snapshot, err := r.snapshot(ctx, true)
	if err != nil {
		return err
	}
	e, err := p.evidence(r, o)
	if err != nil {
		return err
	}
	e.fill(ctx, snapshot)
	missing, err := e.Close()
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintln(p.Out, o.file); err != nil {
		return err
	}
	if missing > 0 {
		_, _ = fmt.Fprintf(p.ErrOut, "%d parts are missing: index.html says which, and why\n", missing)
	}
	if ctx.Err() != nil {
		return errors.New("interrupted: " + o.file + " has what was collected before")
	}
	return nil
}
