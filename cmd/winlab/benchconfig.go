package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
)

type benchConfig struct {
	operator, json string
	hosts          int
	growth         bool
	joins          int
	quiet          time.Duration
	out            io.Writer
}

func newBenchConfig() *cobra.Command {
	b := &benchConfig{}
	command := &cobra.Command{
		Use:   "config",
		Short: "Change mirrors, CA certificates, the pull secret and the proxy of many nodes",
		Long: `config joins hosts and changes one setting after the other. For each change it measures the time
from the write until each node reports the change as applied, the requests to the API server by client and
purpose, and the number of SSH connections, which must be 0. With --growth it first measures half of the hosts,
and prints how much more twice as many hosts cost.

maxUnavailable is 100%, because a proxy restarts every service, and nodes would otherwise change one after the
other. Simulated hosts share this machine with the API server and the operator. Therefore seconds are an upper
bound for this machine; counts and ratios are the same on every machine. config also prints the processor time of
each program for a change. It subtracts the time that the program needs while nothing changes, which it measures
for --quiet before the change.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			b.out = command.OutOrStdout()
			return b.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&b.operator, "operator", "out/bin/wmco", "the operator's binary")
	flags.IntVar(&b.hosts, "hosts", 200, "how many nodes there are")
	flags.BoolVar(&b.growth, "growth", true, "also measure half of the hosts, and compare")
	flags.IntVar(&b.joins, "joins", 20, "how many hosts may join at once, which does not affect the figures")
	flags.DurationVar(&b.quiet, "quiet", 20*time.Second, "how long to count while nothing happens")
	flags.StringVar(&b.json, "json", "", "write the figures to this file")
	return command
}

// configFigures is the content of out/bench-config.json.
type configFigures struct {
	MaxUnavailable string      `json:"maxUnavailable"`
	Runs           []configRun `json:"runs"`
	// Growth is, for each change, the number of requests with all hosts divided by the number of requests with half of
	// the hosts. It counts only requests of the operator and the daemons.
	Growth map[string]float64 `json:"growth,omitempty"`
}

type configRun struct {
	Hosts       int          `json:"hosts"`
	JoinSeconds float64      `json:"joinSeconds"`
	Quiet       quietFigures `json:"quiet"`
	// OperatorMegabytes is the operator's peak of resident memory after all changes, in megabytes.
	OperatorMegabytes float64         `json:"operatorPeakMegabytes,omitempty"`
	Changes           []changeFigures `json:"changes"`
}

func (b *benchConfig) run(ctx context.Context) error {
	f := configFigures{MaxUnavailable: "100%"}
	counts := []int{b.hosts}
	if b.growth {
		counts = []int{b.hosts / 2, b.hosts}
	}
	for _, hosts := range counts {
		run, err := b.measure(ctx, hosts)
		if err != nil {
			return err
		}
		f.Runs = append(f.Runs, run)
	}
	if b.growth {
		f.Growth = map[string]float64{}
		for i, change := range f.Runs[1].Changes {
			f.Growth[change.Name] = float64(change.Requests) / float64(f.Runs[0].Changes[i].Requests)
		}
	}
	return writeFigures(b.out, b.json, f)
}

func (b *benchConfig) measure(ctx context.Context, hosts int) (run configRun, err error) {
	all := intstr.FromString("100%")
	s, err := scene.Start(ctx, scene.Options{
		Operator: b.operator, Progress: b.out, AnyKubectl: true, Audit: true,
		Settings: &v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{MaxConcurrentJoins: int32(b.joins),
			MaxUnavailable: &all}},
		Hosts: fleet.Options{Count: hosts, Costs: sim.Costs{ProcessStart: time.Millisecond}},
	})
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	began := time.Now()
	if err = s.List(ctx, s.Fleet.Hosts...); err != nil {
		return run, err
	}
	if err = s.WaitReady(ctx, joinTimeout, s.Fleet.Hosts...); err != nil {
		return run, err
	}
	run = configRun{Hosts: hosts, JoinSeconds: time.Since(began).Seconds()}
	fmt.Fprintf(b.out, "%d hosts Ready after %.1f s\n", hosts, run.JoinSeconds)
	watcher, err := watchVersions(ctx, s)
	if err != nil {
		return run, err
	}
	defer watcher.stop()
	if err = sleep(ctx, settling); err != nil {
		return run, err
	}
	fmt.Fprintf(b.out, "listening for %s while nothing happens\n", b.quiet)
	if run.Quiet, err = listen(ctx, s, b.quiet); err != nil {
		return run, fmt.Errorf("measuring %d idle hosts: %w", hosts, err)
	}
	changes, err := dayTwoChanges(s)
	if err != nil {
		return run, err
	}
	for _, change := range changes {
		figures, err := b.change(ctx, s, watcher, change, run.Quiet)
		if err != nil {
			return run, fmt.Errorf("measuring %s with %d hosts: %w", change.name, hosts, err)
		}
		run.Changes = append(run.Changes, figures)
	}
	run.OperatorMegabytes, err = peakOf(s.Operator.PID())
	return run, err
}
