// Command wmco-e2e tests a user's cluster against the acceptance criteria. For each criterion it reports that the test
// passed, that it failed, or why the criterion can't be tested on this cluster.
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
	// After the first signal, the program cleans up. A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	code := acceptance.Main(ctx, os.Args,
		genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
