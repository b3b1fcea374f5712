// Command kubectl-windows is a kubectl plugin for administrators of Windows nodes. It shows the state of hosts and
// nodes, explains problems, and changes settings.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // for the time zones of maintenance windows: Windows has no files with time zones

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
