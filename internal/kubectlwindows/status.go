package kubectlwindows

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/windows-nodes/wmco/internal/diagnosis"
)

// watchEvery is how often --watch reads the status: two lists and two objects.
const watchEvery = 5 * time.Second

func (p *plugin) statusCommand() *cobra.Command {
	html := false
	command := &cobra.Command{
		Use:   "status",
		Short: "Show all hosts, the rollout, and why hosts wait or fail, on one screen",
		Long: `Show whether the operator is running and what it lacks, how many hosts are Ready, the progress and the
limits of the rollout of the desired revision, and the reasons why hosts wait or fail, with the fix for
each.

With more than 20 hosts, status lists only hosts with a problem. To list all hosts, use -o wide. The exit
code is 2 if there is a problem. Missing parts of the payload are shown, but don't change the exit code.`,
		Example: `  kubectl windows status

  # Watch a rollout until Ctrl-C
  kubectl windows status --watch

  # Write a page for a browser, which needs no other file
  kubectl windows status --html > fleet.html

  # List the names of hosts that fail
  kubectl windows status -o json | jq -r '.hosts[] | select(.failing) | .name'`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error {
			r, err := p.connect()
			if err != nil {
				return err
			}
			if p.watch {
				return p.watchStatus(command.Context(), r)
			}
			status, err := r.status(command.Context())
			if err != nil {
				return err
			}
			if html {
				page := diagnosis.Page{Now: p.now(), Status: &status, Clean: diagnosis.Visible}
				if err = page.Write(p.Out); err == nil && !status.Healthy() {
					err = errUnhealthy
				}
				return err
			}
			return p.show(&status, nil)
		},
	}
	command.Flags().BoolVarP(&p.watch, "watch", "w", false, "update the screen when something changes, until Ctrl-C")
	command.Flags().BoolVar(&html, "html", false, "print a web page")
	p.outputFlag(command, "wide", "json", "yaml")
	command.MarkFlagsMutuallyExclusive("html", "watch")
	command.MarkFlagsMutuallyExclusive("html", "output")
	return command
}

func (r *reader) status(ctx context.Context) (diagnosis.Status, error) {
	snapshot, err := r.snapshot(ctx, false)
	if err != nil {
		return diagnosis.Status{}, err
	}
	return diagnosis.Summarize(snapshot), nil
}

// watchStatus prints the status until the user interrupts it. On a terminal, it clears the screen each time. Without a
// terminal, it prints only a changed status. It continues if the API server can't be reached.
func (p *plugin) watchStatus(ctx context.Context, r *reader) error {
	last := ""
	err := wait.PollUntilContextCancel(ctx, watchEvery, true, func(ctx context.Context) (bool, error) {
		screen, err := p.screen(ctx, r)
		switch {
		case err != nil && (last == "" || ctx.Err() != nil):
			return false, err
		case err != nil:
			_, _ = fmt.Fprintln(p.ErrOut, "error:", diagnosis.Visible(err.Error()))
			return false, nil
		}
		err = p.redraw(screen, last)
		last = screen
		return false, err
	})
	if ctx.Err() == nil { // not because of Ctrl-C
		return err
	}
	return nil
}

func (p *plugin) screen(ctx context.Context, r *reader) (string, error) {
	status, err := r.status(ctx)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = p.print(&text, &status)
	return text.String(), err
}

func (p *plugin) redraw(screen, last string) error {
	switch {
	case printers.IsTerminal(p.Out):
		screen = "\x1b[H\x1b[2J" + screen
	case screen == last:
		return nil
	}
	_, err := fmt.Fprint(p.Out, screen)
	return err
}
