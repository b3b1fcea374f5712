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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// change holds the options of a command that changes objects.
type change struct {
	yes    bool
	dryRun string
}

// Values of --dry-run, as in kubectl.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// edits completes a command that changes objects with --dry-run, and with --yes if it asks a question.
func (p *plugin) edits(command *cobra.Command, asks bool,
	run func(ctx context.Context, e *editor, args []string) error) *cobra.Command {
	var ch change
	command.Flags().StringVar(&ch.dryRun, "dry-run", dryRunNone,
		"none; client shows what would be changed; server also lets the API server check it")
	if asks {
		command.Flags().BoolVarP(&ch.yes, "yes", "y", false, "do not ask")
	}
	command.PreRunE = func(*cobra.Command, []string) error {
		switch ch.dryRun {
		case dryRunNone, dryRunClient, dryRunServer:
			return nil
		}
		return fmt.Errorf("--dry-run is %q and must be none, client or server", ch.dryRun)
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		r, err := p.connect()
		if err != nil {
			return err
		}
		if ch.dryRun == dryRunServer {
			r.Client = client.NewDryRunClient(r.Client)
		}
		return run(command.Context(), &editor{reader: r, IOStreams: p.IOStreams, change: ch}, args)
	}
	return command
}

// editor changes objects that users may also change by hand, according to a change.
type editor struct {
	*reader
	genericiooptions.IOStreams
	change
}

// confirm asks the user before a disruptive change.
func (e *editor) confirm(question string, subjects []string) error {
	if e.yes || e.dryRun != dryRunNone {
		return nil
	}
	_, _ = fmt.Fprintf(e.ErrOut, "%s: %s\nContinue? [y/N] ", question, strings.Join(subjects, ", "))
	answer, _ := bufio.NewReader(e.In).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return errors.New("not confirmed: nothing was changed; use --yes to skip the question")
}

// merge patches an object with a map of changes, in one request.
func (e *editor) merge(ctx context.Context, object client.Object, changes map[string]any, subject string) error {
	text, err := json.Marshal(changes)
	if err != nil || e.dryRun == dryRunClient {
		return err
	}
	if err = e.Patch(ctx, object, client.RawPatch(types.MergePatchType, text)); err != nil {
		return fmt.Errorf("changing %s: %w", subject, err)
	}
	return nil
}

// done prints the change.
func (e *editor) done(format string, args ...any) error {
	suffix := map[string]string{dryRunClient: " (dry run)", dryRunServer: " (server dry run)"}[e.dryRun]
	_, err := fmt.Fprintf(e.Out, format+suffix+"\n", args...)
	return err
}

// each calls a function for each host, and continues after an error.
func each(names []string, do func(name string) error) error {
	var failed error
	for _, name := range names {
		failed = errors.Join(failed, do(name))
	}
	return failed
}
