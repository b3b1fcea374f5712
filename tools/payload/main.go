// Command payload fills a payload directory with the Windows binaries that a node runs. It is a build tool for
// people and CI, and is not shipped.
//
// It cross-builds programs that have a Go module, from the versions that the modules under payload/ pin. It takes
// the other programs from a directory that the caller names. The manifest lists missing programs and the features
// that are off without them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "payload:", err)
		os.Exit(1)
	}
}

// command parses the command line and runs the command.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("payload", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := options{Stdout: stdout, Stderr: stderr}
	flags.StringVar(&o.Out, "out", filepath.Join("out", "payload"), "payload `directory` to fill")
	flags.StringVar(&o.Supplied, "supplied", "", "`directory` with executables to take instead of building them")
	flags.StringVar(&o.Version, "version", "dev", "`version` of the payload and of the daemon in it")
	flags.StringVar(&o.Root, "root", ".", "top `directory` of the source tree")
	asked := flags.String("minors", defaultMinor, "minor `versions` of Kubernetes, such as 1.36,1.37, or "+allMinors)
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the command line: %w", err)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("reading the command line: %q is not understood", flags.Arg(0))
	}
	minors, err := minorsIn(o.Root, *asked)
	if err != nil {
		return fmt.Errorf("reading the command line: %w", err)
	}
	o.Components = components(minors)
	return run(ctx, o)
}
