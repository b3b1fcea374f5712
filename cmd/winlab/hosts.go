package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/version"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

func newHosts() *cobra.Command {
	var count int
	var keyFile, fail string
	var latency time.Duration
	command := &cobra.Command{
		Use:   "hosts",
		Short: "Start simulated Windows hosts only, for use with any cluster",
		Long: `hosts starts simulated Windows hosts that let the given public key in, prints the windows-instances ConfigMap that lists them, and runs
until Ctrl-C. The operator that is to reach them must run on this machine: they listen on addresses of 127.0.0.0/8.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			line, err := os.ReadFile(keyFile)
			if err != nil {
				return fmt.Errorf("reading the public key: %w", err)
			}
			key, _, _, _, err := ssh.ParseAuthorizedKey(line)
			if err != nil {
				return fmt.Errorf("reading the public key in %s: %w", keyFile, err)
			}
			faults, err := fleet.ParseFaults(fail)
			if err != nil {
				return fmt.Errorf("reading --fail: %w", err)
			}
			hosts, err := fleet.Start(command.Context(), fleet.Options{
				Count: count, AuthorizedKey: key, Programs: scene.Programs(version.Version()), Faults: faults, Costs: lively(), Latency: latency, Log: logr.Discard(),
			})
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, hosts.Close()) }()
			out := command.OutOrStdout()
			fmt.Fprintf(out, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: windows-instances\n  namespace: openshift-windows-machine-config-operator\ndata:\n")
			for _, h := range hosts.Hosts {
				address, value := h.Entry()
				fmt.Fprintf(out, "  %s: %q\n", address, value)
			}
			<-command.Context().Done()
			return nil
		},
	}
	flags := command.Flags()
	flags.IntVar(&count, "count", 3, "how many hosts to start")
	flags.StringVar(&keyFile, "key", "", "file with the public key that lets in, as a line of authorized_keys")
	flags.StringVar(&fail, "fail", "", "faults of the first hosts, separated by commas")
	flags.DurationVar(&latency, "latency", 2*time.Millisecond, "one-way delay of the network")
	_ = command.MarkFlagRequired("key") // the flag exists
	return command
}
