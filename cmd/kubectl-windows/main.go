// Command kubectl-windows is a plugin of kubectl for Windows nodes: what state they are in, why, and
// what administrators change of them.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // maintenance windows have time zones, which Windows has no files of

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/windows-nodes/wmco/internal/kubectlwindows"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := kubectlwindows.Run(ctx, os.Args,
		genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	stop()
	os.Exit(code)
}
