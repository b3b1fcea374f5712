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
into one archive. Start with its page index.html. Data of nodes comes through kubelet. If a node does not
answer, only its part is missing.

bundle does not read Secrets. It replaces private keys, tokens, passwords in URLs and after names of
passwords, and values of variables and of unknown annotations by [redacted]. Names and addresses of hosts
stay. Review the archive before you share it.

Ctrl-C ends bundle, and the archive has what was collected so far. Until the archive is complete, its name
ends in .partial.`,
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
	command.Flags().StringVar(&o.file, "file", "", "name of the archive; by default it contains the time")
	command.Flags().StringSliceVar(&o.nodes, "nodes", nil, "nodes whose logs are collected; all by default")
	command.Flags().Int64Var(&o.logBytes, "log-bytes", defaultLogBytes, "how many bytes to collect from the end of "+
		"each log")
	command.Flags().Int64Var(&o.limit, "max-bytes", defaultLimit,
		"how many bytes to collect in total, before compression")
	command.Flags().DurationVar(&o.timeout, "timeout", defaultTimeout, "how long bundle may take")
	return command
}

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
		return errors.New("interrupted: " + o.file + " contains what was collected before")
	}
	return nil
}
