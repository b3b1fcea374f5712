package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func newBench() *cobra.Command {
	command := &cobra.Command{Use: "bench", Short: "Measure, in counts and ratios"}
	command.AddCommand(newBenchJoin(), newBenchConfig(), newBenchUpgrade())
	return command
}

type bench struct {
	operator, json, cluster string
	byItself                bool
	hosts                   int
	quiet                   time.Duration
	out                     io.Writer
}

func newBenchJoin() *cobra.Command {
	b := &bench{}
	command := &cobra.Command{
		Use:   "join",
		Short: "Join one host, many at once, and many with an unreachable and a slow one among them",
		Long: `join measures how long one host takes from being listed to being Ready, how long many take at
once, and how much an unreachable and a very slow host among them change that. It counts at each host's SSH
server, and at the API server: what a restart of the operator costs, and what happens while nothing changes.
With --by-itself, the unreachable host never runs its command, and the cost of downloads through the API server's
service proxy is measured, too. Hosts are simulated, with 500 ms for each process start and a round trip of 5 ms.
Only counts and ratios are meaningful.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			b.out = command.OutOrStdout()
			return b.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&b.operator, "operator", "out/bin/wmco", "the operator's binary")
	flags.IntVar(&b.hosts, "hosts", 50, "how many hosts to join at once")
	flags.StringVar(&b.json, "json", "", "write the figures to this file")
	flags.BoolVar(&b.byItself, "by-itself", false, "let the hosts join by themselves, without SSH servers")
	flags.StringVar(&b.cluster, "cluster", clusterOpenShift,
		"kind of the cluster: "+clusterOpenShift+", or "+clusterKubernetes+" as kubeadm configures it")
	flags.DurationVar(&b.quiet, "quiet", time.Minute, "how long to count while nothing happens")
	return command
}

// joinFigures is the content of out/bench-join.json.
type joinFigures struct {
	Hosts int `json:"hosts"`
	// Times in seconds from the listing of the hosts until the hosts are Ready: for one host, for many hosts at once,
	// and for many healthy hosts in a fleet that also contains a dead host and a slow host.
	OneSeconds    float64 `json:"oneSeconds"`
	ManySeconds   float64 `json:"manySeconds"`
	AilingSeconds float64 `json:"ailingSeconds"`
	ManyToOne     float64 `json:"manyToOne"`
	AilingToMany  float64 `json:"ailingToMany"`
	// OperatorMegabytes is the operator's peak of resident memory until all hosts have joined, in megabytes.
	OperatorMegabytes float64 `json:"operatorPeakMegabytes,omitempty"`
	// Processor is the processor time per join of each program, in seconds, if many hosts join at once. All hosts run
	// in the program winlab.
	Processor map[string]float64 `json:"processorSecondsPerJoin,omitempty"`
	// PerHost contains the counters of the hosts' SSH servers: for each counter, the maximum over all hosts.
	PerHost sshd.Counters `json:"perHostAtMost"`
	// Requests is the number of API requests per join, by client, and by verb and resource. It counts all requests
	// until the last host was Ready, and divides them by the number of hosts. PerJoin is the sum.
	PerJoin  float64                       `json:"requestsPerJoin"`
	Requests map[string]map[string]float64 `json:"requests"`
	// RestartConnections is the number of SSH connections after a restart of the operator. The operator restarts when
	// all hosts have joined.
	RestartConnections int64 `json:"restartConnections"`
	// Proxy is the cost of downloads through the API server's service proxy. It is nil without --by-itself.
	Proxy *proxyFigures `json:"proxy,omitempty"`
	Quiet quietFigures  `json:"quiet"`
}

func (b *bench) run(ctx context.Context) error {
	if b.cluster != clusterOpenShift && b.cluster != clusterKubernetes {
		return fmt.Errorf("--cluster is %s or %s", clusterOpenShift, clusterKubernetes)
	}
	f := joinFigures{Hosts: b.hosts}
	err := b.with(ctx, 1, nil, func(s *scene.Scene) (err error) {
		if f.OneSeconds, err = b.join(ctx, s, s.Fleet.Hosts); err == nil && b.byItself {
			f.Proxy, err = measureProxy(ctx, s)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = b.with(ctx, b.hosts, nil, func(s *scene.Scene) (err error) {
		used, err := processorTimes()
		if err != nil {
			return err
		}
		if f.ManySeconds, err = b.join(ctx, s, s.Fleet.Hosts); err != nil {
			return err
		}
		spent, err := spentSince(used)
		if err != nil {
			return err
		}
		f.Processor = map[string]float64{}
		for program, all := range spent {
			f.Processor[program] = all.Seconds() / float64(b.hosts)
		}
		f.PerHost = atMost(s.Fleet.Hosts)
		if f.PerJoin, f.Requests, err = requestsPerJoin(s, b.hosts); err != nil {
			return err
		}
		if f.OperatorMegabytes, err = peakOf(s.Operator.PID()); err != nil {
			return err
		}
		if f.RestartConnections, err = restart(ctx, s); err != nil {
			return err
		}
		f.Quiet, err = listen(ctx, s, b.quiet)
		return err
	})
	if err != nil {
		return err
	}
	err = b.with(ctx, b.hosts+2, []fleet.Fault{fleet.FaultHung}, func(s *scene.Scene) (err error) {
		s.Fleet.Hosts[1].Machine.SetCosts(sim.Costs{ProcessStart: time.Minute})
		if server := s.Fleet.Hosts[1].Server; server != nil {
			server.Change(func(o *sshd.Settings) { o.Latency = time.Second })
		}
		f.AilingSeconds, err = b.join(ctx, s, s.Fleet.Hosts[2:])
		return err
	})
	if err != nil {
		return err
	}
	f.ManyToOne, f.AilingToMany = f.ManySeconds/f.OneSeconds, f.AilingSeconds/f.ManySeconds
	return writeFigures(b.out, b.json, f)
}

// mostJoins is the maximum value of spec.rollout.maxConcurrentJoins that the API server accepts.
const mostJoins = 1000

func (b *bench) with(ctx context.Context, hosts int, faults []fleet.Fault,
	measure func(*scene.Scene) error) (err error) {
	s, err := scene.Start(ctx, scene.Options{
		Operator: b.operator, Progress: b.out, AnyKubectl: true, Audit: true,
		Kubernetes: b.cluster == clusterKubernetes, ByItself: b.byItself,
		Settings: &v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{
			MaxConcurrentJoins: int32(min(hosts, mostJoins))}},
		Hosts: fleet.Options{
			Count: hosts, Faults: faults, Latency: 2500 * time.Microsecond,
			Costs: sim.Costs{ProcessStart: 500 * time.Millisecond},
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return measure(s)
}

// joinTimeout is enough time for a thousand hosts on a busy machine.
const joinTimeout = 30 * time.Minute

// join lists all hosts (or runs their commands) and returns the seconds until the wanted hosts are Ready.
func (b *bench) join(ctx context.Context, s *scene.Scene, wanted []*fleet.Host) (float64, error) {
	began := time.Now()
	bring := listAll
	if b.byItself {
		bring = runCommands
	}
	if err := bring(ctx, s, wanted); err != nil {
		return 0, err
	}
	if err := s.WaitReady(ctx, joinTimeout, wanted...); err != nil {
		return 0, err
	}
	took := time.Since(began).Seconds()
	fmt.Fprintf(b.out, "%d hosts Ready after %.1f s\n", len(wanted), took)
	return took, nil
}

func listAll(ctx context.Context, s *scene.Scene, _ []*fleet.Host) error {
	return s.List(ctx, s.Fleet.Hosts...)
}

// runCommands runs the command of each wanted host and waits for it. The fleet's other hosts have faults: the first of
// them never runs its command, and runCommands doesn't wait for the commands of the rest.
func runCommands(ctx context.Context, s *scene.Scene, wanted []*fleet.Host) error {
	if ailing := s.Fleet.Hosts[:len(s.Fleet.Hosts)-len(wanted)]; len(ailing) > 0 {
		if _, _, err := s.Invite(ctx, scene.NameOf(ailing[0])); err != nil {
			return err
		}
		go func() { _ = s.Join(ctx, ailing[1:]...) }()
	}
	return s.Join(ctx, wanted...)
}

// requestsPerJoin counts the API requests of the operator, the daemons, the kubelets and the hosts' own services since
// the start of the scene. It ignores leases, because clients renew them whether or not a host joins.
func requestsPerJoin(s *scene.Scene, hosts int) (sum float64, by map[string]map[string]float64, err error) {
	by = map[string]map[string]float64{}
	names := map[who]string{operator: "operator", daemons: "daemons", kubelets: "kubelets", attendants: "hosts"}
	for r, err := range s.Requests() {
		if err != nil {
			return 0, nil, fmt.Errorf("reading the audit log: %w", err)
		}
		from := names[whose(r)]
		if from == "" || r.Resource == "leases" {
			continue
		}
		if by[from] == nil {
			by[from] = map[string]float64{}
		}
		by[from][asked(r)] += 1 / float64(hosts)
		sum += 1 / float64(hosts)
	}
	return sum, by, nil
}

// restart kills the operator and starts it again. It counts new SSH connections to hosts in the ten seconds afterwards.
func restart(ctx context.Context, s *scene.Scene) (connections int64, err error) {
	before := connectionsOf(s.Fleet.Hosts)
	if err = s.Operator.Kill(); err != nil {
		return 0, err
	}
	if err = s.Operator.Start(ctx); err != nil {
		return 0, err
	}
	if err = sleep(ctx, 10*time.Second); err != nil {
		return 0, err
	}
	return connectionsOf(s.Fleet.Hosts) - before, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func connectionsOf(hosts []*fleet.Host) (sum int64) {
	for _, h := range hosts {
		sum += h.Counters().Connections
	}
	return sum
}

func startsOf(hosts []*fleet.Host) (sum int64) {
	for _, h := range hosts {
		sum += int64(h.Machine.Starts().Processes)
	}
	return sum
}

func atMost(hosts []*fleet.Host) (most sshd.Counters) {
	for _, h := range hosts {
		c := h.Counters()
		most.Connections, most.Authenticated = max(most.Connections, c.Connections),
			max(most.Authenticated, c.Authenticated)
		most.Commands, most.PowerShellStarts = max(most.Commands, c.Commands),
			max(most.PowerShellStarts, c.PowerShellStarts)
		most.SFTPSessions, most.OpenConnections = max(most.SFTPSessions, c.SFTPSessions),
			max(most.OpenConnections, c.OpenConnections)
		most.BytesIn, most.BytesOut = max(most.BytesIn, c.BytesIn), max(most.BytesOut, c.BytesOut)
	}
	return most
}
