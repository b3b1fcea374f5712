package kubectlwindows

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type change struct {
	yes    bool
	dryRun cmdutil.DryRunStrategy
}

// `edits` adds the flag --dry-run to a command that changes objects, and makes the command call `run`. If `asks` is
// true, edits also adds the flag --yes, which skips a confirmation.
func (p *plugin) edits(command *cobra.Command, asks bool,
	run func(ctx context.Context, e *editor, args []string) error) *cobra.Command {
	var ch change
	cmdutil.AddDryRunFlag(command)
	command.Flag("dry-run").Usage = "none; client shows what would be changed; server also lets the API server check it"
	if asks {
		command.Flags().BoolVarP(&ch.yes, "yes", "y", false, "do not ask")
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		var err error
		if ch.dryRun, err = cmdutil.GetDryRunStrategy(command); err != nil {
			return err
		}
		r, err := p.connect()
		if err != nil {
			return err
		}
		if ch.dryRun == cmdutil.DryRunServer {
			r.Client = client.NewDryRunClient(r.Client)
		}
		return run(command.Context(), &editor{reader: r, IOStreams: p.IOStreams, change: ch}, args)
	}
	return command
}

// editor changes objects on behalf of a command. It changes only objects that users may also change by hand.
type editor struct {
	*reader
	genericiooptions.IOStreams
	change
}

// confirm asks the user to confirm a disruptive change, except with --yes or --dry-run. Without a confirmation, it
// fails.
func (e *editor) confirm(question string, subjects []string) error {
	if e.yes || e.dryRun != cmdutil.DryRunNone {
		return nil
	}
	_, _ = fmt.Fprintf(e.ErrOut, "%s: %s\nContinue? [y/N] ", question, strings.Join(subjects, ", "))
	answer, _ := bufio.NewReader(e.In).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return errors.New("not confirmed: nothing was changed; use --yes to skip the question")
}

// merge applies changes to an object in one request, as a merge patch. subject names the object in errors.
func (e *editor) merge(ctx context.Context, object client.Object, changes map[string]any, subject string) error {
	text, err := json.Marshal(changes)
	if err != nil || e.dryRun == cmdutil.DryRunClient {
		return err
	}
	if err = e.Patch(ctx, object, client.RawPatch(types.MergePatchType, text)); err != nil {
		return fmt.Errorf("changing %s: %w", subject, err)
	}
	return nil
}

// done prints that a change was made, or that this was a dry run.
func (e *editor) done(format string, args ...any) error {
	suffix := map[cmdutil.DryRunStrategy]string{cmdutil.DryRunClient: " (dry run)",
		cmdutil.DryRunServer: " (server dry run)"}[e.dryRun]
	_, err := fmt.Fprintf(e.Out, format+suffix+"\n", args...)
	return err
}

// `each` calls `do` for every name, even after an error, and joins all errors.
func each(names []string, do func(name string) error) error {
	var failed error
	for _, name := range names {
		failed = errors.Join(failed, do(name))
	}
	return failed
}
