package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

type demoUpgrade struct {
	operator, next, json, changed string
	hosts, budget, pods           int
	once, keep, debug             bool
	timeout                       time.Duration
}

func newDemoUpgrade() *cobra.Command {
	d := &demoUpgrade{}
	command := &cobra.Command{
		Use:   "demo-upgrade",
		Short: "Upgrade simulated Windows nodes with pods on them, and watch",
		Long: `demo-upgrade joins simulated hosts with one build of the operator, puts pods on them that take
time to end and have a PodDisruptionBudget, starts the next build, in whose payload some programs differ, and
shows the steps of each node: what it fetched while it was in service, when it was out of service, and for how
long. A separate observer watches the Nodes. With --once it writes a report and ends: with 0 when everything
was as it should be.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context(), command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&d.operator, "operator", "out/bin/wmco", "the operator's binary before the upgrade")
	flags.StringVar(&d.next, "next", "", "the operator's binary of the next version; empty builds one")
	flags.StringVar(&d.changed, "changed", "kubelet.exe,windows-instance-config-daemon.exe",
		"parts of the payload that are others in the next version, separated by commas")
	flags.IntVar(&d.hosts, "hosts", 10, "how many hosts to start")
	flags.IntVar(&d.budget, "max-unavailable", 2, "how many nodes may be unavailable at once")
	flags.IntVar(&d.pods, "pods", 0, "how many pods run on the nodes (default twice as many as hosts)")
	flags.BoolVar(&d.once, "once", false, "write the report and end when all nodes are upgraded")
	flags.StringVar(&d.json, "json", "", "write the report to this file")
	flags.BoolVar(&d.keep, "keep", false, "keep the directory with logs and data")
	flags.BoolVar(&d.debug, "debug", false, "let the operator log in detail")
	flags.DurationVar(&d.timeout, "timeout", 10*time.Minute, "how long the upgrade may take")
	return command
}

// Times in the demo. On a real cluster they are longer.
const (
	demoSettle   = 2 * time.Second
	demoPodGrace = 3 * time.Second
)

func (d *demoUpgrade) run(ctx context.Context, out io.Writer) (err error) {
	changed, err := d.check()
	if err != nil {
		return err
	}
	temporary, err := os.MkdirTemp("", "winlab-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if d.next == "" {
		fmt.Fprintln(out, "building the next version of the operator")
		if d.next, err = scene.BuildOperator(ctx, temporary, nextOperator); err != nil {
			return err
		}
	}
	s, err := scene.Start(ctx, scene.Options{
		Operator: d.operator, Progress: out, AnyKubectl: true, Keep: d.keep, Debug: d.debug, Scheduler: true,
		Settings: upgradeSettings(d.budget, d.hosts, demoSettle),
		Hosts:    fleet.Options{Count: d.hosts, Costs: lively(), Latency: latency},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Fprintf(out, "\nLook around:\n  export KUBECONFIG=%s\n  %s get wininst,nodes,winconf\n\n", s.Cluster.Kubeconfig,
		s.Cluster.Binaries.Kubectl)
	if d.keep {
		fmt.Fprintf(out, "Logs and data stay in %s\n\n", s.Dir)
	}
	if err = d.populate(ctx, s, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "starting the next version; in its payload %s are others\n\n",
		strings.Join(slices.Sorted(maps.Keys(changed)), ", "))
	screen := newScreen(out)
	u := &upgrade{scene: s, operator: d.next, changed: changed, budget: d.budget, timeout: d.timeout,
		show: screen.showUpgrade}
	report, err := u.run(ctx)
	if ctx.Err() != nil && !d.once {
		return nil
	}
	err = errors.Join(err, report.judge())
	if d.json != "" {
		err = errors.Join(err, writeJSON(d.json, report))
	}
	fmt.Fprintf(out, "\n%s → %s: %d nodes in %.1f s, at most %d out of service at once, each for at most %.1f s; "+
		"%d bytes to each while it served; %d SSH connections; %d pods moved\n",
		report.From, report.To, report.Nodes, report.Seconds, report.MostUnavailable, report.MaxUnavailableSeconds,
		report.ChangedBytes, report.SSHConnections, report.PodsEnded)
	if err != nil || d.once {
		return err
	}
	fmt.Fprintln(out, "Ctrl-C ends it.")
	<-ctx.Done()
	return nil
}

// check checks the flags and sets defaults. It returns the new versions of the parts that the upgrade changes.
func (d *demoUpgrade) check() (map[string]string, error) {
	if d.hosts < 2 || d.budget < 1 || d.pods < 0 {
		return nil, errors.New("--hosts must be at least 2, and --max-unavailable at least 1")
	}
	if d.pods == 0 {
		d.pods = 2 * d.hosts
	}
	changed, err := changedParts(d.changed)
	if err != nil {
		return nil, fmt.Errorf("reading --changed: %w", err)
	}
	return changed, nil
}

func (d *demoUpgrade) populate(ctx context.Context, s *scene.Scene, out io.Writer) error {
	if err := s.List(ctx, s.Fleet.Hosts...); err != nil {
		return err
	}
	if err := s.WaitReady(ctx, d.timeout, s.Fleet.Hosts...); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d nodes are Ready; %d pods follow\n", d.hosts, d.pods)
	return s.Run(ctx, d.timeout, scene.Workload{Name: "web", Replicas: int32(d.pods), Grace: demoPodGrace,
		MaxUnavailable: max(1, d.pods/4)})
}

const nextOperator = "0.2.0"

// upgradeSettings lets up to 20 hosts join at once. budget is the number of nodes that may be unavailable at once.
func upgradeSettings(budget, hosts int, settle time.Duration) *v1alpha1.WindowsMachineConfigSpec {
	unavailable := intstr.FromInt(budget)
	return &v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{
		MaxConcurrentJoins: int32(min(hosts, 20)), MaxUnavailable: &unavailable,
		SettleTime: &metav1.Duration{Duration: settle},
	}}
}
