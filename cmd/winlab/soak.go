package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/lab/soak"
)

type soakRun struct {
	json string
	// away limits two times: how long a host or the API server is down, and how late a disruption may start in its
	// round. If away is 0, realistic times are used.
	away    time.Duration
	options soak.Options
}

func newSoak() *cobra.Command {
	s := &soakRun{}
	command := &cobra.Command{
		Use:   "soak",
		Short: "Disrupt many nodes for an hour, then see that all have converged and nothing has leaked",
		Long: `soak joins simulated hosts, and then disrupts them in rounds. In each round, up to four disruptions
happen at the same time: a setting changes (mirror, CA, pull secret, proxy, logging, kubelet), annotations
reboot nodes, hosts lose power and come back, hosts are removed and added again, the operator is killed and
started again, or the API server goes away and comes back. The next round starts when everything has converged:
every node is Ready, in service and at the desired revision, no certificate request is pending, no slot of the
rollout budget is held, and no instance fails.

soak counts resources twice after a quiet time: after a warm-up, in which each disruption happens once and every
host is rebooted, and at the end. It compares goroutines, open files and resident memory of the operator and of
this process, which runs all hosts; objects in the API server by kind; and files, services, certificates, open
handles and processes of each host. It does not compare events and certificate requests, because Kubernetes
deletes these an hour after their creation. A resource that disappears within half of --limit is no leak.

--seed determines the disruptions. soak prints the seed. The same seed and number of hosts give the same rounds,
but not at the same times. The exit code is 0 if soak ran to its end, everything converged and nothing leaked.
Otherwise soak names what did not converge, or what grew and by how much. Ctrl-C ends soak with a report of the
rounds so far.`,
		Example: `  winlab soak --operator out/bin/wmco                                an hour with 50 nodes
  winlab soak --operator out/bin/wmco --time 5m --hosts 10           a first impression
  winlab soak --operator out/bin/wmco --seed 7 --keep                again, and look at the logs afterwards`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return s.run(command.Context(), command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&s.options.Operator, "operator", "out/bin/wmco", "the operator's binary")
	flags.DurationVar(&s.options.Time, "time", time.Hour, "how long to continue after all hosts have joined")
	flags.IntVar(&s.options.MostRounds, "rounds", 0, "end after so many rounds, if --time has not ended it before")
	flags.DurationVar(&s.away, "away", 0,
		fmt.Sprintf("how long a host or the API server is away at most (default %s and %s)", soak.Vanish, soak.Outage))
	flags.IntVar(&s.options.Schedule.Hosts, "hosts", 50, "how many nodes there are")
	flags.Uint64Var(&s.options.Schedule.Seed, "seed", 0,
		"seed of the disruptions (default a new one each time)")
	flags.DurationVar(&s.options.Limit, "limit", 15*time.Minute, "how long a round may take until all has converged")
	flags.DurationVar(&s.options.Calm, "calm", 30*time.Second, "how long to do nothing before things are counted")
	flags.DurationVar(&s.options.Certificates, "certificates", 0,
		"the longest life of certificates (default five sixths of --time and at least 10m, so that each is renewed)")
	flags.StringVar(&s.json, "json", "", "write the report to this file")
	flags.BoolVar(&s.options.Keep, "keep", false, "keep the directory with logs and data")
	flags.BoolVar(&s.options.Debug, "debug", false, "let the operator log in detail")
	return command
}

func (s *soakRun) run(ctx context.Context, out io.Writer) error {
	o := &s.options
	if o.Schedule.Hosts < 1 || o.Time <= 0 || o.Limit <= 0 {
		return errors.New("--hosts, --time and --limit must be more than 0")
	}
	if o.Schedule.Seed == 0 {
		o.Schedule.Seed = rand.Uint64()
	}
	if o.Certificates == 0 {
		o.Certificates = max(soak.ShortestCertificate, o.Time*5/6)
	}
	o.Schedule.Vanish, o.Schedule.Outage, o.Schedule.Spread = soak.Vanish, soak.Outage, soak.Spread
	if s.away > 0 {
		o.Schedule.Vanish, o.Schedule.Outage, o.Schedule.Spread = s.away, s.away, s.away
	}
	o.Progress = out
	fmt.Fprintf(out, "--seed %d\n", o.Schedule.Seed)
	report, err := soak.Run(ctx, *o)
	if s.json != "" {
		err = errors.Join(err, writeJSON(s.json, report))
	}
	fmt.Fprintf(out, "%d nodes for %.0f s: %v in %d rounds\n", report.Hosts, report.Seconds, report.Made,
		len(report.Rounds))
	for _, line := range report.Compared() {
		fmt.Fprintln(out, line)
	}
	return errors.Join(err, report.Err())
}
