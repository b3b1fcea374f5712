package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o, vulnerabilities := options{}, false
	c := &cobra.Command{
		Use:          "bump",
		Short:        "Show newer versions of pinned modules, or update to them",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		Long: `Show newer versions of pinned modules, or update to them.

For each go.mod of the repository, a line names the module, the pinned version, its newest patch, and whether the
licence changed. Without --write, nothing is changed. After --write, run make test.`,
		RunE: func(c *cobra.Command, _ []string) error {
			files, err := modFiles(c.Context(), o.root)
			if err != nil {
				return err
			}
			for i, file := range files {
				_, _ = fmt.Fprintf(c.ErrOrStderr(), "looking at %s (%d of %d)\n", file, i+1, len(files))
				if err = o.bump(c.Context(), c.OutOrStdout(), file); err != nil {
					return fmt.Errorf("%s: %w", file, err)
				}
				if vulnerabilities {
					o.check(c.Context(), c.OutOrStdout(), file)
				}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.root, "root", ".", "top `directory` of the source tree")
	f.BoolVar(&o.minor, "minor", false, "also update to newer minor versions")
	f.BoolVar(&o.write, "write", false, "change the go.mod files")
	f.BoolVar(&vulnerabilities, "vulnerabilities", false,
		"run govulncheck on each module, which needs https://vuln.go.dev")
	return c
}

// modFiles returns the go.mod files under version control, except the tests' go.mod files.
func modFiles(ctx context.Context, root string) ([]string, error) {
	text, err := run(ctx, root, "git", "ls-files", "go.mod", "*/go.mod")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(text) {
		if file := strings.TrimSpace(line); !strings.Contains(file, "testdata/") {
			all = append(all, file)
		}
	}
	return all, nil
}

// govulncheck is the pinned version of govulncheck.
const govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"

// check prints the known vulnerabilities that a module's code can reach. If the check fails, it prints the reason.
func (o options) check(ctx context.Context, out io.Writer, file string) {
	text, err := run(ctx, filepath.Join(o.root, filepath.Dir(file)), "go", "run", govulncheck, "./...")
	if err != nil {
		_, _ = fmt.Fprintf(out, "%s: vulnerabilities: %v\n", file, err)
		return
	}
	_, _ = fmt.Fprintf(out, "%s: %s\n", file, strings.TrimSpace(text))
}

// run runs a program in a directory and returns its output. If the program fails, the error contains the output.
func run(ctx context.Context, directory, program string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, program, args...)
	c.Dir = directory
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s%s", program, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String(), nil
}
