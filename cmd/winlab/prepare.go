package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/kubeadm"
	"github.com/windows-nodes/wmco/lab/prometheus"
)

func newPrepare() *cobra.Command {
	tests := false
	command := &cobra.Command{
		Use:   "prepare",
		Short: "Build the control plane, so that everything else starts at once",
		Long: `prepare builds etcd, kube-apiserver, controller-manager and kubectl from their pinned
modules into the user's cache directory. The first time takes some minutes; after that it has
nothing to do. Other commands do the same when they need it.

With --tests it builds what only tests run, too: kube-scheduler, kubeadm and Prometheus. That takes some minutes
more, once.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			progress := command.ErrOrStderr()
			binaries, err := cluster.Build(command.Context(), cluster.BuildOptions{Progress: progress})
			if err == nil && tests {
				err = prepareTests(command.Context(), progress)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "The control plane is ready; its kubectl is %s\n",
				binaries.Kubectl)
			return err
		},
	}
	command.Flags().BoolVar(&tests, "tests", false, "build what only tests run, too")
	return command
}

// prepareTests builds programs that only tests run and that take minutes to build.
func prepareTests(ctx context.Context, progress io.Writer) error {
	options := cluster.BuildOptions{Progress: progress}
	_, err := cluster.BuildScheduler(ctx, options)
	if err == nil {
		_, err = kubeadm.Build(ctx, options)
	}
	if err == nil {
		_, _, err = prometheus.Build(ctx, options)
	}
	return err
}
