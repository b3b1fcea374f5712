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
modules into the user's cache directory. The first time takes some minutes. After that, prepare has
nothing to do. Other commands build the same programs when they need them.

With --tests, prepare also builds the programs that only tests run: kube-scheduler, kubeadm and Prometheus. The
first time takes some more minutes.`,
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
	command.Flags().BoolVar(&tests, "tests", false, "also build the programs that only tests run")
	return command
}

// prepareTests builds programs that only the tests need. Building them takes minutes.
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
