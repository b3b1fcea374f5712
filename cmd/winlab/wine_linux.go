package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/lab/wine"
)

func newWine() *cobra.Command {
	command := &cobra.Command{Use: "wine", Short: "Run real Windows programs, under Wine"}
	command.AddCommand(newWineRun(), newWineCheck(), newWinePrepare())
	return command
}

func newWineRun() *cobra.Command {
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "run [flags] <program.exe> [arguments]",
		Short: "Run one Windows program on a new host",
		Long: `run makes a Windows host of Wine, runs the program on it, and removes the host. It ends with
the program's exit code. A folder testdata in the working directory comes along, so that it serves Go's tests:
GOOS=windows go test -exec "winlab wine run" ./internal/daemon/winos`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			template, err := wine.Prepare(ctx, wine.Options{Progress: command.ErrOrStderr()})
			if err != nil {
				return err
			}
			code, err := template.RunOnce(ctx, wine.Once{
				Path: arguments[0], Arguments: arguments[1:], TestData: "testdata",
				Stdin: os.Stdin, Stdout: command.OutOrStdout(), Stderr: command.ErrOrStderr(),
			})
			if err == nil && code != 0 {
				err = exitError{code}
			}
			return err
		},
	}
	command.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "kill the program after this time")
	command.Flags().SetInterspersed(false)
	return command
}

func newWineCheck() *cobra.Command {
	var namespaces bool
	command := &cobra.Command{
		Use: "check", Short: "Check whether this machine can run hosts under Wine", Args: cobra.NoArgs,
		Long: `check fails if Wine or the cross compiler is missing, and prints whether hosts get namespaces. Without
namespaces, one host runs at a time, with this machine's network, and the tests of the real kubelet and kube-proxy
are skipped.`,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := wine.Check(); err != nil {
				return err
			}
			answer := "each host under Wine gets its own namespaces"
			if !wine.CanIsolate(command.Context()) {
				answer = "no namespaces for hosts under Wine, because they need root, CAP_SYS_ADMIN, CAP_NET_ADMIN, " +
					"iproute2 and util-linux: one host at a time, and without the tests of the real kubelet and " +
					"kube-proxy (A46)"
				if namespaces {
					return errors.New(answer)
				}
			}
			_, err := fmt.Fprintln(command.OutOrStdout(), answer)
			return err
		},
	}
	command.Flags().BoolVar(&namespaces, "namespaces", false, "also fail if hosts get no namespaces")
	return command
}

func newWinePrepare() *cobra.Command {
	return &cobra.Command{
		Use: "prepare", Short: "Build the kubelet and the kube-proxy that tests run under Wine", Args: cobra.NoArgs,
		Long: `prepare builds kubelet.exe and kube-proxy.exe, of the minor versions that tests take a node
from and to, into the user's cache directory. The first time takes some minutes; after that it has nothing to do.`,
		RunE: func(command *cobra.Command, _ []string) error {
			return wine.PrepareKubernetes(command.Context(), command.ErrOrStderr())
		},
	}
}

// exitError is an error with the exit code of a program that winlab ran. winlab exits with the same code.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("the program ended with exit code %d", e.code) }

func (e exitError) ExitCode() int { return e.code }
