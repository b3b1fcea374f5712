// Command winlab runs the lab: a local control plane, simulated Windows hosts and the real operator. It is for demos,
// benchmarks and experiments.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/version"
)

func main() {
	logf.SetLogger(logr.Discard()) // silences the clients in winlab; the operator writes its own log
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "winlab:", err)
		code := interface{ ExitCode() int }(nil)
		if errors.As(err, &code) {
			os.Exit(code.ExitCode())
		}
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "winlab",
		Short: "Run wmco without a Windows machine",
		Long: `winlab runs the real operator against a real API server and simulated Windows hosts, all on this machine.

The control plane (etcd, kube-apiserver, controller manager, kubectl) is built from pinned Go modules the
first time, which takes some minutes; afterwards a lab starts within seconds. Several labs can run at once,
and nothing is left behind when one ends.`,
		Example: `  winlab demo --operator out/bin/wmco              watch three hosts become nodes
  winlab demo --operator out/bin/wmco --fail auth  see what a host says whose key is refused
  winlab demo-upgrade --operator out/bin/wmco      watch ten nodes go to the next version
  winlab hosts --count 2 --key id_ed25519.pub      only hosts, for use with any cluster
  winlab bench join --operator out/bin/wmco        measure
  winlab soak --operator out/bin/wmco              disrupt fifty nodes for an hour, and look for leaks`,
		Version: version.Version(), SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newDemo(), newDemoUpgrade(), newHosts(), newBench(), newSoak(), newPrepare(), newWine())
	return root
}
