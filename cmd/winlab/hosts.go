package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
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
	var keyFile, fail, reach string
	var wine bool
	var latency time.Duration
	command := &cobra.Command{
		Use:   "hosts",
		Short: "Start simulated Windows hosts only, for use with any cluster",
		Long: `hosts starts simulated Windows hosts that accept the given public key, prints the
windows-instances ConfigMap that lists them, and runs until Ctrl-C. The operator must
run on this machine: they listen on addresses of 127.0.0.0/8.`,
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
			options := fleet.Options{
				Count: count, AuthorizedKey: key, Programs: scene.Programs(version.Version()), Faults: faults,
				Costs: lively(), Latency: latency, Log: logr.Discard(),
			}
			if wine {
				if options.Computer, err = wineComputer(command.Context(), count, reach,
					command.ErrOrStderr()); err != nil {
					return err
				}
			}
			hosts, err := fleet.Start(command.Context(), options)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, hosts.Close()) }()
			out := command.OutOrStdout()
			fmt.Fprintf(out, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: windows-instances\n  namespace: "+
				"openshift-windows-machine-config-operator\ndata:\n")
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
	flags.StringVar(&keyFile, "key", "", "file with the public key that the hosts accept, as a line of authorized_keys")
	flags.StringVar(&fail, "fail", "", "faults of the first hosts, separated by commas")
	flags.BoolVar(&wine, "wine", false, "run the hosts under Wine instead of simulating them")
	flags.StringVar(&reach, "reach", "", "with --wine, servers of this machine that the hosts must reach, as "+
		"127.0.0.1:6443, separated by commas: the API server, and the operator's payload server")
	flags.DurationVar(&latency, "latency", 2*time.Millisecond, "one-way delay of the network")
	_ = command.MarkFlagRequired("key") // can't fail, because the flag exists
	return command
}

// wineComputer prepares Wine and returns a function that starts a host. Hosts can connect to the addresses in `reach`.
func wineComputer(ctx context.Context, count int, reach string,
	progress io.Writer) (func(context.Context, string, netip.Addr) (fleet.Computer, error), error) {
	var targets []netip.AddrPort
	for text := range strings.FieldsFuncSeq(reach, func(r rune) bool { return r == ',' }) {
		target, err := netip.ParseAddrPort(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("reading --reach: %w", err)
		}
		targets = append(targets, target)
	}
	hosts, err := newWineHosts(ctx, count, false, progress)
	if err != nil {
		return nil, err
	}
	return hosts.computer(targets), nil
}
