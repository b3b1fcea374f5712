package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
)

type benchUpgrade struct {
	operator, json string
	hosts, budget  int
	settle         time.Duration
	joins          int
	out            io.Writer
}

func newBenchUpgrade() *cobra.Command {
	b := &benchUpgrade{}
	command := &cobra.Command{
		Use:   "upgrade",
		Short: "Change one program of many nodes, with a budget and with twice the budget",
		Long: `upgrade joins hosts, gives the operator a payload that differs in kubelet only, and measures how
many bytes each node receives, how long it receives them in service, and how long it is out of service. Then it
does the same with twice the budget, and compares. There must be no SSH connection. Simulated hosts share this
machine with the API server and the operator, and their programs have a few KiB: only bytes, counts and ratios
are meaningful.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			b.out = command.OutOrStdout()
			return b.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&b.operator, "operator", "out/bin/wmco", "the operator's binary")
	flags.IntVar(&b.hosts, "hosts", 100, "how many nodes there are")
	flags.IntVar(&b.budget, "max-unavailable", 5, "how many nodes may be unavailable at once in the first run; "+
		"twice as many in the second")
	flags.DurationVar(&b.settle, "settle", 10*time.Second, "how long a node must be Ready before it goes back into "+
		"service")
	flags.IntVar(&b.joins, "joins", 20, "how many hosts may join at once, which does not affect the figures")
	flags.StringVar(&b.json, "json", "", "write the figures to this file")
	return command
}

// upgradeFigures is the content of out/bench-upgrade.json.
type upgradeFigures struct {
	Hosts         int     `json:"hosts"`
	SettleSeconds float64 `json:"settleSeconds"`
	JoinSeconds   float64 `json:"joinSeconds"`
	// Runs contains two upgrades: the first with the rollout budget, the second with twice the budget.
	Runs []upgradeReport `json:"runs"`
	// TwiceToOnce is DisruptedSeconds of the second upgrade divided by DisruptedSeconds of the first upgrade.
	TwiceToOnce float64 `json:"twiceToOnce"`
	// UnavailableSecondsPerNode is a node's average time out of service, for each upgrade. StagedSecondsPerNode is the
	// average time that a node in service downloaded the payload, for each upgrade.
	UnavailableSecondsPerNode []float64 `json:"unavailableSecondsPerNode"`
	StagedSecondsPerNode      []float64 `json:"stagedSecondsPerNode"`
}

func (b *benchUpgrade) run(ctx context.Context) (err error) {
	f := upgradeFigures{Hosts: b.hosts, SettleSeconds: b.settle.Seconds()}
	settings := upgradeSettings(b.budget, b.joins, b.settle)
	s, err := scene.Start(ctx, scene.Options{
		Operator: b.operator, Progress: b.out, AnyKubectl: true, Settings: settings,
		Hosts: fleet.Options{Count: b.hosts, Costs: sim.Costs{ProcessStart: time.Millisecond}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	began := time.Now()
	if err = s.List(ctx, s.Fleet.Hosts...); err != nil {
		return err
	}
	if err = s.WaitReady(ctx, 30*time.Minute, s.Fleet.Hosts...); err != nil {
		return err
	}
	f.JoinSeconds = time.Since(began).Seconds()
	fmt.Fprintf(b.out, "%d hosts Ready after %.1f s\n", b.hosts, f.JoinSeconds)
	var wrong []error
	payload := s.PayloadDir()
	for i, budget := range []int{b.budget, 2 * b.budget} {
		if err = s.Configure(ctx, *upgradeSettings(budget, b.joins, b.settle)); err != nil {
			return err
		}
		next := filepath.Join(s.Dir, fmt.Sprintf("payload-%d", i+1))
		u := &upgrade{
			scene: s, budget: budget, timeout: time.Hour, from: payload, to: next,
			changed: map[string]string{"kubelet.exe": fmt.Sprintf("v1.36.%d", 4+i)},
		}
		report, err := u.run(ctx)
		if err != nil {
			return fmt.Errorf("upgrading with %d: %w", budget, err)
		}
		fmt.Fprintf(b.out, "with %d at once: %.1f s\n", budget, report.DisruptedSeconds)
		wrong = append(wrong, report.judge())
		f.add(report)
		payload = next
	}
	f.TwiceToOnce = f.Runs[1].DisruptedSeconds / f.Runs[0].DisruptedSeconds
	if f.TwiceToOnce < fewest || f.TwiceToOnce > most {
		wrong = append(wrong, fmt.Errorf("with twice the budget it took %.2f of the time, and half of it is due, "+
			"within a quarter", f.TwiceToOnce))
	}
	wrong = append(wrong, writeFigures(b.out, b.json, f))
	return errors.Join(wrong...)
}

// Bounds of TwiceToOnce. With twice the budget, an upgrade should take half of the time; 25 % more or less are allowed.
const (
	fewest = 0.375
	most   = 0.625
)

func (f *upgradeFigures) add(report upgradeReport) {
	unavailable, staged := 0.0, 0.0
	for _, n := range report.PerNode {
		unavailable += n.UnavailableSeconds
		staged += n.StagedSeconds
	}
	nodes := float64(max(1, len(report.PerNode)))
	f.Runs = append(f.Runs, report)
	f.UnavailableSecondsPerNode = append(f.UnavailableSecondsPerNode, unavailable/nodes)
	f.StagedSecondsPerNode = append(f.StagedSecondsPerNode, staged/nodes)
}
