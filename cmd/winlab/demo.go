package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
)

type demo struct {
	operator, payload, json, fail, platform, cluster string
	hosts, machines                                  int
	once, keep, debug, wine, byItself                bool
	timeout                                          time.Duration
}

func newDemo() *cobra.Command {
	d := &demo{}
	command := &cobra.Command{
		Use:   "demo",
		Short: "Join simulated Windows hosts to a local cluster and watch",
		Long: `demo starts a control plane, simulated Windows hosts and the operator, lists the hosts in
windows-instances, and shows how each host joins until Ctrl-C. The control plane looks like OpenShift, or with
--cluster kubernetes like a cluster that kubeadm configured. With --machines, demo also starts a simulated cloud
with a MachineSet. Its Machines boot with the operator's user data and become nodes without being listed. With
--by-itself, the hosts aren't listed, and each runs the command that the operator publishes for it. With
--once, demo removes one host and one Machine again, checks that they are gone and the host is clean, writes a
report, and exits. The exit code is 0 if every host joined. Otherwise demo prints the reasons.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context(), command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&d.operator, "operator", "out/bin/wmco", "the operator's binary")
	flags.IntVar(&d.hosts, "hosts", 3, "how many hosts to start")
	flags.IntVar(&d.machines, "machines", 0, "how many Machines the MachineSet has")
	flags.StringVar(&d.platform, "platform", "",
		"the cluster's platform: "+strings.Join(cloud.Platforms(), ", ")+
			", or none (default AWS with --machines, none without)")
	flags.StringVar(&d.cluster, "cluster", clusterOpenShift,
		"kind of the cluster: "+clusterOpenShift+", or "+clusterKubernetes+" as kubeadm configures it")
	flags.StringVar(&d.fail, "fail", "", "faults of the first hosts, separated by commas: "+
		strings.Join(fleet.FaultNames(), ", "))
	flags.BoolVar(&d.once, "once", false, "remove one host at the end, write the report, and end")
	flags.StringVar(&d.json, "json", "", "write the report to this file")
	flags.StringVar(&d.payload, "payload", "", "a payload directory made by `make payload`, instead of small stand-ins")
	flags.BoolVar(&d.wine, "wine", false, "run the hosts under Wine instead of simulating them, with the real "+
		"Windows programs that run there")
	flags.BoolVar(&d.byItself, "by-itself", false, "let the hosts join by themselves: they have no SSH "+
		"server, and the cluster has no private key")
	flags.BoolVar(&d.keep, "keep", false, "keep the directory with logs and data")
	flags.BoolVar(&d.debug, "debug", false, "let the operator log in detail")
	flags.DurationVar(&d.timeout, "timeout", 3*time.Minute, "with --once, how long to wait for the hosts")
	return command
}

const (
	clusterOpenShift  = "openshift"
	clusterKubernetes = "kubernetes"
)

const machineSet = "windows"

// latency is the delay of the simulated network in each direction.
const latency = 2 * time.Millisecond

// lively returns durations of operations on hosts. On a real host, they are longer.
func lively() sim.Costs {
	return sim.Costs{ProcessStart: 200 * time.Millisecond, PowerShellStart: time.Second}
}

func (d *demo) run(ctx context.Context, out io.Writer) (err error) {
	faults, err := fleet.ParseFaults(d.fail)
	if err != nil {
		return fmt.Errorf("reading --fail: %w", err)
	}
	if d.hosts < len(faults) || d.machines < 0 || d.hosts+d.machines < 1 {
		return fmt.Errorf("--hosts and --machines must be at least 1 together, and --hosts at least as many as "+
			"--fail has faults (%d)", len(faults))
	}
	if d.byItself && (d.wine || d.machines > 0 || slices.ContainsFunc(faults, fleet.Fault.OfServers)) {
		return errors.New("--by-itself starts simulated hosts without an SSH server: leave out --wine, --machines, " +
			"and faults of SSH servers")
	}
	platform, err := d.platformType()
	if err != nil {
		return err
	}
	began := time.Now()
	options := scene.Options{
		Operator: d.operator, Payload: d.payload, Complete: true, Progress: out, AnyKubectl: true,
		Keep: d.keep, Debug: d.debug, ByItself: d.byItself, Platform: platform,
		Kubernetes: d.cluster == clusterKubernetes,
		Cloud:      cloud.Options{Provision: time.Second, Boot: 2 * time.Second, Costs: lively(), Latency: latency},
		Hosts:      fleet.Options{Count: d.hosts, Faults: faults, Costs: lively(), Latency: latency},
	}
	hosts, err := d.useWine(ctx, &options, faults, out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hosts.close()) }()
	s, err := scene.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Fprintf(out, "\nLook around:\n  export KUBECONFIG=%s\n  %s get wininst,nodes\n\n", s.Cluster.Kubeconfig,
		s.Cluster.Binaries.Kubectl)
	if d.keep {
		fmt.Fprintf(out, "Logs and data stay in %s\n\n", s.Dir)
	}
	if err = d.bring(ctx, s); err != nil {
		return err
	}
	if d.machines > 0 {
		if _, err = s.NewMachineSet(ctx, machineSet, int32(d.machines)); err != nil {
			return err
		}
	}
	screen := newScreen(out)
	settled, err := d.watch(ctx, s, screen)
	if err != nil || !d.once {
		return err
	}
	return d.conclude(ctx, s, hosts, conclusion{out: out, began: began, settled: settled})
}

// bring starts the join of all hosts: it lists the hosts, or with --by-itself, it runs the command of each host.
func (d *demo) bring(ctx context.Context, s *scene.Scene) error {
	if !d.byItself {
		return s.List(ctx, s.Fleet.Hosts...)
	}
	return s.Join(ctx, s.Fleet.Hosts...)
}

type conclusion struct {
	out     io.Writer
	began   time.Time
	settled bool
}

func (d *demo) conclude(ctx context.Context, s *scene.Scene, hosts *wineHosts, end conclusion) (err error) {
	report, problems := d.finish(ctx, s, end.out)
	report.Seconds = time.Since(end.began).Seconds()
	if d.wine {
		report.Wine, err = hosts.report(ctx, s.Fleet.Hosts)
		problems = append(problems, err)
	}
	if !end.settled {
		problems = append(problems, fmt.Errorf("not every host settled within %s", d.timeout))
	}
	if d.json != "" {
		problems = append(problems, writeJSON(d.json, report))
	}
	return errors.Join(problems...)
}

// useWine prepares Wine and changes options so that the hosts run in Wine. Without --wine, it does nothing.
func (d *demo) useWine(ctx context.Context, options *scene.Options, faults []fleet.Fault, out io.Writer) (*wineHosts,
	error) {
	if !d.wine {
		return &wineHosts{}, nil
	}
	switch {
	case d.payload != "" || d.machines > 0:
		return nil, errors.New(
			"--wine builds its own payload and knows no Machines: leave out --payload and --machines")
	case slices.ContainsFunc(faults, fleet.Fault.OfMachines):
		return nil, errors.New("--fail has a fault that only simulated hosts can have: remove --wine")
	}
	hosts, err := newWineHosts(ctx, d.hosts, true, out)
	if err == nil {
		hosts.use(options)
	}
	return hosts, err
}

// watch shows the hosts until Ctrl-C or, with --once, until all hosts have settled or the time is over.
func (d *demo) watch(ctx context.Context, s *scene.Scene, screen *screen) (settled bool, err error) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.Now().Add(d.timeout)
	for {
		rows, err := look(ctx, s)
		if ctx.Err() != nil {
			return false, nil // the user pressed Ctrl-C
		}
		if err != nil {
			return false, err
		}
		screen.show(rows)
		if d.once && len(rows) == d.hosts+d.machines && allSettled(rows) {
			return true, nil
		}
		if d.once && time.Now().After(deadline) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, nil
		case err = <-s.Cluster.Died():
			return false, err
		case err = <-s.Operator.Ended():
			return false, fmt.Errorf("the operator ended by itself: %w", err)
		case <-ticker.C:
		}
	}
}

func (d *demo) platformType() (configv1.PlatformType, error) {
	if d.cluster != clusterOpenShift && (d.cluster != clusterKubernetes || d.machines > 0 || d.platform != "" ||
		d.wine) {
		return "", fmt.Errorf("--cluster is %s, or %s without --machines, --platform and --wine", clusterOpenShift,
			clusterKubernetes)
	}
	switch {
	case d.platform == "" && d.machines > 0:
		return configv1.AWSPlatformType, nil
	case d.platform == "", strings.EqualFold(d.platform, string(configv1.NonePlatformType)):
		if d.machines > 0 {
			return "", errors.New("--machines needs a --platform that has Machines")
		}
		return configv1.NonePlatformType, nil
	}
	for _, name := range cloud.Platforms() {
		if strings.EqualFold(name, d.platform) {
			return configv1.PlatformType(name), nil
		}
	}
	return "", fmt.Errorf("--platform is %s and must be %s or none", d.platform, strings.Join(cloud.Platforms(), ", "))
}

// isTerminal reports whether out is a terminal, where text can be redrawn. width is the number of its columns.
func isTerminal(out io.Writer) (width int, ok bool) {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(file.Fd()))
	return width, err == nil && width > 0
}
