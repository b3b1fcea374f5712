package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/lab/cluster"
)

func newPrepare() *cobra.Command {
	return &cobra.Command{
		Use:   "prepare",
		Short: "Build the control plane, so that everything else starts at once",
		Long: `prepare builds etcd, kube-apiserver, controller-manager and kubectl from their pinned
modules into the user's cache directory. The first time takes some minutes; after that it has
nothing to do. Other commands do the same when they need it.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			binaries, err := cluster.Build(command.Context(), cluster.BuildOptions{Progress: command.ErrOrStderr()})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "The control plane is ready; its kubectl is %s\n",
				binaries.Kubectl)
			return err
		},
	}
}
