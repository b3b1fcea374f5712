// Command realwindows tests the operator on real Windows: it starts a control plane on this machine, makes the machine
// a node, and removes the node. The workflow windows.yml runs it. You can also run it on a spare machine. With
// --simulated, it uses a simulated host and runs the same steps on any system, as in its tests.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	logf.SetLogger(logr.Discard()) //nolint:forbidigo // this is the command, and the operator has its own log
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "realwindows:", err)
		os.Exit(1)
	}
}

// options of a run.
type options struct {
	// operator is the operator's program. next is the program of the next version. payload is the directory of the
	// payload. Without a payload, stand-ins are used.
	operator, next, payload string
	// results is the directory for the results.
	results string
	// simulated uses a simulated host instead of this machine.
	simulated bool
	// `only` lists the rows of the acceptance list to test; empty means all rows.
	only []string
	// patience is the maximum time for each join, upgrade and removal.
	patience time.Duration
	// pace is the interval between two checks of the acceptance list.
	pace time.Duration
}

// command runs one of the commands: test, run or summary.
func command(ctx context.Context, args []string, out io.Writer) error {
	o := options{pace: 2 * time.Second}
	flags := flag.NewFlagSet("realwindows test|run|summary", flag.ContinueOnError)
	flags.StringVar(&o.operator, "operator", filepath.Join("out", "bin", "wmco.exe"), "the operator's `program`")
	flags.StringVar(&o.next, "next", "", "the operator's `program` of the next version")
	flags.StringVar(&o.payload, "payload", filepath.Join("out", "payload"), "`directory` of the payload")
	flags.StringVar(&o.results, "results", filepath.Join("out", "windows"), "`directory` for what was found")
	flags.BoolVar(&o.simulated, "simulated", false, "take a simulated host instead of this machine")
	flags.DurationVar(&o.patience, "patience", 20*time.Minute, "how long a join, an upgrade and a removal may take")
	if len(args) == 0 {
		flags.Usage()
		return flag.ErrHelp
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if err := os.MkdirAll(o.results, 0o755); err != nil { //nolint:gosec // the next steps of the job read it
		return err
	}
	switch args[0] {
	case "test":
		return native(ctx, out, o.results, nativePackages())
	case "run":
		return run(ctx, out, o)
	case "summary":
		return summarise(out, o.results)
	}
	return fmt.Errorf("the command %q is unknown; the commands are test, run and summary", args[0])
}
