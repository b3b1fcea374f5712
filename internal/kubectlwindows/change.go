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
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// change is how a command changes objects.
type change struct {
	yes    bool
	dryRun string
}

// Values of --dry-run, as kubectl has them.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// flags adds --dry-run, and --yes where a question is asked.
func (ch *change) flags(command *cobra.Command, asks bool) {
	command.Flags().StringVar(&ch.dryRun, "dry-run", dryRunNone,
		"none; client says what would be changed; server has the API server check it, too")
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
}

// confirm asks before something that disrupts.
func (p *plugin) confirm(ch change, format string, args ...any) error {
	if ch.yes || ch.dryRun != dryRunNone {
		return nil
	}
	_, _ = fmt.Fprintf(p.ErrOut, format+"\nContinue? [y/N] ", args...)
	answer, _ := bufio.NewReader(p.In).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return errors.New("not confirmed: nothing was changed; --yes does not ask")
}

// merge patches an object, in one request, with a map of what changes.
func merge(ctx context.Context, c client.Client, ch change, object client.Object, changes map[string]any,
	subject string) error {
	text, err := json.Marshal(changes)
	if err != nil {
		return err
	}
	var options []client.PatchOption
	switch ch.dryRun {
	case dryRunClient:
		return nil
	case dryRunServer:
		options = append(options, client.DryRunAll)
	}
	if err = c.Patch(ctx, object, client.RawPatch(types.MergePatchType, text), options...); err != nil {
		return fmt.Errorf("changing %s: %w", subject, err)
	}
	return nil
}

// done says what was changed.
func (p *plugin) done(ch change, format string, args ...any) error {
	suffix := map[string]string{dryRunClient: " (dry run)", dryRunServer: " (server dry run)"}[ch.dryRun]
	_, err := fmt.Fprintf(p.Out, format+suffix+"\n", args...)
	return err
}

// each does something with each of some hosts, and goes on where one fails.
func each(names []string, do func(name string) error) error {
	var failed []error
	for _, name := range names {
		if err := do(name); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
