// Command wmco-e2e tries the acceptance list on a cluster of the user's, and reports row by row what
// was shown, what failed, and what can't be shown there.
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
	// The second signal ends what the first has clean up.
	context.AfterFunc(ctx, stop)
	code := acceptance.Main(ctx, os.Args,
		genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
