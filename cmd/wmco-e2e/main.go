// Command wmco-e2e tests the acceptance list on a user's cluster. For each row it reports whether the test passed or
// failed, or why the row can't be tested there.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/windows-nodes/wmco/test/acceptance"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal also ends the cleanup.
	context.AfterFunc(ctx, stop)
	code := acceptance.Main(ctx, os.Args,
		genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
