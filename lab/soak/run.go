package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/openshift"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
)

// Options of a soak test.
type Options struct {
	// Operator is the path of the operator's binary. Required.
	Operator string
	// Schedule is the plan of the disruptions.
	Schedule Schedule
	// Time is the duration of the test after all hosts have joined. No round begins after this time. MostRounds is the
	// maximum number of rounds, without the warm-up. 0 means no limit.
	Time       time.Duration
	MostRounds int
	// Limit is the maximum time for one disruption, and also for the convergence after a round.
	Limit time.Duration
	// Calm is the pause before each count.
	Calm time.Duration
	// Certificates is the maximum lifetime of certificates.
	Certificates time.Duration
	// Keep keeps the directory with logs and data. Debug enables the operator's debug log.
	Keep, Debug bool
	// Progress receives a line for each thing that happens.
	Progress io.Writer
}

// Report is the result of a soak test.
type Report struct {
	Seed  uint64 `json:"seed"`
	Hosts int    `json:"hosts"`
	// JoinSeconds is the time until all hosts are nodes. Seconds is the time after that.
	JoinSeconds float64       `json:"joinSeconds"`
	Seconds     float64       `json:"seconds"`
	Rounds      []RoundReport `json:"rounds"`
	// Made counts the disruptions by kind.
	Made map[string]int `json:"made"`
	// Before are the figures after the warm-up. After are the figures at the end.
	Before *Figures `json:"before,omitempty"`
	After  *Figures `json:"after,omitempty"`
	// Unsettled lists what didn't converge. Leaks lists the figures that grew.
	Unsettled []string `json:"unsettled"`
	Leaks     []Leak   `json:"leaks"`
	// Interrupted reports that the test was stopped early.
	Interrupted bool `json:"interrupted"`
}

// RoundReport is one round.
type RoundReport struct {
	// Number counts rounds from 1. It is 0 for rounds of the warm-up.
	Number int   `json:"number"`
	Round  Round `json:"disruptions"`
	// Seconds until the cluster had converged.
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// run is a running soak test.
type run struct {
	options Options
	scene   *scene.Scene
	// admin is a client that also knows OpenShift's objects.
	admin client.Client
	// token authorizes requests for the operator's metrics.
	token  string
	began  time.Time
	report Report
	// warm counts the rounds of the warm-up so far.
	warm int

	mu     sync.Mutex
	listed map[*fleet.Host]bool
}

// Run runs a soak test in its own scene. Its error says why it stopped. The report contains the results until then.
func Run(ctx context.Context, options Options) (_ Report, err error) {
	r := &run{options: options, listed: map[*fleet.Host]bool{}, report: Report{Seed: options.Schedule.Seed,
		Hosts: options.Schedule.Hosts, Made: map[string]int{}, Unsettled: []string{}, Leaks: []Leak{}}}
	share := intstr.FromString("20%")
	r.scene, err = scene.Start(ctx, scene.Options{
		Operator: options.Operator, Progress: options.Progress, AnyKubectl: true,
		Keep: options.Keep, Debug: options.Debug, Metrics: true, SigningDuration: options.Certificates,
		// Delete unused manifests soon, so that only used ones are left at the end.
		Arguments: []string{"--manifest-retention=10s"},
		Settings: &v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{MaxConcurrentJoins: 20,
			MaxUnavailable: &share, SettleTime: &metav1.Duration{Duration: time.Second}}},
		Hosts: fleet.Options{Count: options.Schedule.Hosts, Costs: sim.Costs{ProcessStart: time.Millisecond}},
	})
	if err != nil {
		return r.report, err
	}
	defer func() { err = errors.Join(err, r.scene.Close()) }()
	if r.admin, err = openshift.Client(r.scene.Cluster.Admin()); err != nil {
		return r.report, err
	}
	if err = r.letScrape(ctx); err != nil {
		return r.report, err
	}
	err = r.soak(ctx)
	r.report.Interrupted = ctx.Err() != nil
	if r.report.Interrupted {
		err = nil
	}
	if err != nil {
		r.countAnyway(ctx)
		err = fmt.Errorf("%w; the end of the operator's log: %s", err, r.scene.Operator.Tail(2000))
	}
	return r.report, err
}

// countAnyway counts after a round that didn't converge, because the figures help to find the cause. It reports no
// leaks, because much work is still running.
func (r *run) countAnyway(ctx context.Context) {
	if r.report.Before == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	after, err := r.measure(ctx)
	if err != nil {
		r.say("counting at the end: %v", err)
		return
	}
	r.report.After = &after
}

// soak lets all hosts join, disrupts them, and counts before and after.
func (r *run) soak(ctx context.Context) error {
	r.began = time.Now()
	if err := r.list(ctx, r.scene.Fleet.Hosts, true); err != nil {
		return err
	}
	if err := r.converge(ctx); err != nil {
		return err
	}
	r.report.JoinSeconds = time.Since(r.began).Seconds()
	r.say("%d hosts have joined after %.0f s", len(r.scene.Fleet.Hosts), r.report.JoinSeconds)
	r.began = time.Now()
	defer func() { r.report.Seconds = time.Since(r.began).Seconds() }()
	for _, round := range r.options.Schedule.WarmUp() {
		r.warm++
		if err := r.round(ctx, 0, round); err != nil {
			return err
		}
	}
	r.say("counting, after a quiet time of %s", r.options.Calm)
	before, err := r.calm(ctx)
	if err != nil {
		return err
	}
	r.report.Before = &before
	n := 0
	for round := range r.options.Schedule.Rounds() {
		if time.Since(r.began) >= r.options.Time || r.options.MostRounds > 0 && n == r.options.MostRounds {
			break
		}
		n++
		if err = r.round(ctx, n, round); err != nil {
			return err
		}
	}
	r.say("counting again, after a quiet time of %s", r.options.Calm)
	return r.compare(ctx, before)
}

// The method calm counts after a pause without disruptions.
func (r *run) calm(ctx context.Context) (Figures, error) {
	if err := sleep(ctx, r.options.Calm); err != nil {
		return Figures{}, err
	}
	if err := r.converge(ctx); err != nil {
		return Figures{}, err
	}
	return r.measure(ctx)
}

// The method compare counts again until no figure has leaked, or until half of Options.Limit is over. If a resource
// disappears within this time, such as an idle connection or an unused revision, it is no leak.
func (r *run) compare(ctx context.Context, before Figures) error {
	for began := time.Now(); ; {
		after, err := r.calm(ctx)
		if err != nil {
			return err
		}
		r.report.After, r.report.Leaks = &after, Leaks(before, after)
		if len(r.report.Leaks) == 0 || time.Since(began) > r.options.Limit/2 {
			return nil
		}
		r.say("%d figures have grown, such as: %s", len(r.report.Leaks), r.report.Leaks[0])
	}
}

// round makes all disruptions of a round in parallel, and waits until the cluster has converged. If a disruption fails,
// round still waits for all others, so that everything is switched on again.
func (r *run) round(ctx context.Context, n int, round Round) error {
	began, number := time.Now(), n+len(r.options.Schedule.WarmUp())
	if n == 0 {
		number = r.warm
	}
	r.say("%s: %s", roundName(n), round)
	var group errgroup.Group
	for _, d := range round {
		r.report.Made[string(d.Kind)]++
		group.Go(func() error { return r.disrupt(ctx, d, number) })
	}
	err := group.Wait()
	if err == nil {
		err = r.converge(ctx)
	}
	report := RoundReport{Number: n, Round: round, Seconds: time.Since(began).Seconds()}
	if err != nil {
		report.Error = err.Error()
		err = fmt.Errorf("%s (%s): %w", roundName(n), round, err)
	} else {
		r.say("%s: everything has converged after %.0f s", roundName(n), report.Seconds)
	}
	r.report.Rounds = append(r.report.Rounds, report)
	return err
}

func roundName(n int) string {
	if n == 0 {
		return "warm-up"
	}
	return fmt.Sprintf("round %d", n)
}

// String returns one line for a terminal.
func (r Round) String() string {
	var all []string
	for _, d := range r {
		all = append(all, d.String())
	}
	return strings.Join(all, "; ")
}

// steady is how many checks in a row must find that the cluster has converged. One check isn't enough, because the
// operator may not have seen the last change yet.
const steady = 6

// converge waits until the cluster has converged. The report lists everything that hasn't converged.
func (r *run) converge(ctx context.Context) error {
	seen, hosts := 0, len(r.scene.Fleet.Hosts)
	err := r.await(ctx, "everything to converge", func(ctx context.Context) error {
		if len(r.scene.Operator.Ended()) > 0 {
			return errors.New("the operator ended by itself")
		}
		behind, err := r.scene.Unsettled(ctx, hosts)
		if err != nil || len(behind) > 0 {
			seen, r.report.Unsettled = 0, append([]string{}, behind...) // an empty list instead of null in the report
			return errors.Join(err, fmt.Errorf("%d things have not: %s", len(behind), strings.Join(behind, "; ")))
		}
		r.report.Unsettled = []string{}
		if seen++; seen < steady {
			return errors.New("it has only just converged")
		}
		return nil
	})
	return err
}

// say prints a message and the time that is left.
func (r *run) say(format string, arguments ...any) {
	left := ""
	if r.report.JoinSeconds > 0 {
		left = fmt.Sprintf("  (%s left)", max(0, r.options.Time-time.Since(r.began)).Round(time.Second))
	}
	fmt.Fprintf(r.options.Progress, "%s%s  %s\n", time.Now().Format("15:04:05"), left,
		fmt.Sprintf(format, arguments...))
}

// Err returns the failures of the test, or nil.
func (r Report) Err() error {
	var all []error
	if r.Interrupted { // the last round had no time to converge
		converged := 0
		for _, round := range r.Rounds {
			if round.Error == "" {
				converged++
			}
		}
		return fmt.Errorf("it was stopped early, after %d rounds that converged", converged)
	}
	for _, what := range r.Unsettled {
		all = append(all, fmt.Errorf("not converged: %s", what))
	}
	for _, leak := range r.Leaks {
		all = append(all, fmt.Errorf("leaked: %s", leak))
	}
	return errors.Join(all...)
}

// Compared returns a line for each figure, before and after.
func (r Report) Compared() (lines []string) {
	if r.Before == nil || r.After == nil {
		return nil
	}
	line := func(what string, from, to int64) {
		lines = append(lines, fmt.Sprintf("  %-55s %10d → %d", what, from, to))
	}
	for _, p := range []struct {
		name     string
		from, to Process
	}{{"operator", r.Before.Operator, r.After.Operator}, {"winlab", r.Before.Lab, r.After.Lab}} {
		line(p.name+": goroutines", int64(p.from.Goroutines), int64(p.to.Goroutines))
		line(p.name+": descriptors", int64(p.from.Descriptors), int64(p.to.Descriptors))
		line(p.name+": resident kB", p.from.Resident>>10, p.to.Resident>>10)
	}
	for _, what := range slices.Sorted(maps.Keys(r.After.Counts)) {
		if from, to := r.Before.Counts[what], r.After.Counts[what]; from != to || strings.HasSuffix(what, "all hosts") {
			line(what, int64(from), int64(to))
		}
	}
	return lines
}
