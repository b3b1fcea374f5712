package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/sim"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// demo is what the user asked for.
type demo struct {
	operator, payload, json, fail string
	hosts                         int
	once, keep, debug             bool
	timeout                       time.Duration
}

func newDemo() *cobra.Command {
	d := &demo{}
	command := &cobra.Command{
		Use:   "demo",
		Short: "Join simulated Windows hosts to a local cluster and watch",
		Long: `demo starts a control plane that looks like OpenShift, simulated Windows hosts and the operator, lists the hosts in windows-instances, and
shows each host's way in until Ctrl-C. With --once it removes one host again, checks that it is clean, writes a report, and ends: with 0 when
every host got there, otherwise with the reasons.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return d.run(command.Context(), command.OutOrStdout())
		},
	}
	flags := command.Flags()
	flags.StringVar(&d.operator, "operator", "out/bin/wmco", "the operator's binary")
	flags.IntVar(&d.hosts, "hosts", 3, "how many hosts to start")
	flags.StringVar(&d.fail, "fail", "", "faults of the first hosts, separated by commas: "+strings.Join(fleet.FaultNames(), ", "))
	flags.BoolVar(&d.once, "once", false, "remove one host at the end, write the report, and end")
	flags.StringVar(&d.json, "json", "", "write the report to this file")
	flags.StringVar(&d.payload, "payload", "", "a payload directory made by `make payload`, instead of small stand-ins")
	flags.BoolVar(&d.keep, "keep", false, "leave the directory with logs and data behind")
	flags.BoolVar(&d.debug, "debug", false, "let the operator log in detail")
	flags.DurationVar(&d.timeout, "timeout", 3*time.Minute, "with --once, how long to wait for the hosts")
	return command
}

// lively are costs that make a demo look like real hosts, only faster.
func lively() sim.Costs {
	return sim.Costs{ProcessStart: 200 * time.Millisecond, PowerShellStart: time.Second}
}

func (d *demo) run(ctx context.Context, out io.Writer) (err error) {
	faults, err := fleet.ParseFaults(d.fail)
	if err != nil {
		return fmt.Errorf("reading --fail: %w", err)
	}
	if d.hosts < 1 || d.hosts < len(faults) {
		return fmt.Errorf("--hosts must be at least 1, and at least as many as --fail has faults (%d)", len(faults))
	}
	began := time.Now()
	s, err := scene.Start(ctx, scene.Options{
		Operator: d.operator, Payload: d.payload, Complete: true, Progress: out, Keep: d.keep, Debug: d.debug,
		Hosts: fleet.Options{Count: d.hosts, Faults: faults, Costs: lively(), Latency: 2 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Fprintf(out, "\nLook around:\n  export KUBECONFIG=%s\n  %s get wininst,nodes\n\n", s.Cluster.Kubeconfig, s.Cluster.Binaries.Kubectl)
	if d.keep {
		fmt.Fprintf(out, "Logs and data stay in %s\n\n", s.Dir)
	}
	if err = s.List(ctx, s.Fleet.Hosts...); err != nil {
		return err
	}
	screen := newScreen(out)
	settled, err := d.watch(ctx, s, screen)
	if err != nil || !d.once {
		return err
	}
	report, problems := d.finish(ctx, s, out)
	report.Seconds = time.Since(began).Seconds()
	if !settled {
		problems = append(problems, fmt.Errorf("not every host settled within %s", d.timeout))
	}
	if d.json != "" {
		problems = append(problems, report.write(d.json))
	}
	return errors.Join(problems...)
}

// watch shows the hosts until all have settled (with --once) or the user has seen enough.
func (d *demo) watch(ctx context.Context, s *scene.Scene, screen *screen) (settled bool, err error) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.Now().Add(d.timeout)
	for {
		rows, err := look(ctx, s)
		if ctx.Err() != nil {
			return false, nil // Ctrl-C is how a demo ends
		}
		if err != nil {
			return false, err
		}
		screen.show(rows)
		if d.once && allSettled(rows) {
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

// row is one host at one moment.
type row struct {
	host     *fleet.Host
	instance *v1alpha1.WindowsInstance // nil before it is made
}

func look(ctx context.Context, s *scene.Scene) ([]row, error) {
	rows := make([]row, len(s.Fleet.Hosts))
	for i, h := range s.Fleet.Hosts {
		instance, err := s.Instance(ctx, h)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if err != nil {
			instance = nil
		}
		rows[i] = row{host: h, instance: instance}
	}
	return rows, nil
}

// allSettled says whether each host is where it can get: Ready, or failed at least twice for the same reason.
func allSettled(rows []row) bool {
	const enough = 2
	for _, r := range rows {
		if r.instance == nil || r.instance.Status.Phase != v1alpha1.PhaseReady && r.instance.Status.Failures < enough {
			return false
		}
	}
	return true
}

// isTerminal says whether output can be redrawn.
func isTerminal(out io.Writer) (width int, ok bool) {
	file, isFile := out.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(file.Fd()))
	return width, err == nil && width > 0
}
