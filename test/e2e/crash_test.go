package e2e_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestA11_TheOperatorIsKilledAgainAndAgainDuringJoins(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	o := options(8)
	o.Hosts.Costs = sim.Costs{ProcessStart: 100 * time.Millisecond}
	o.Hosts.Latency = 2 * time.Millisecond
	s := own(t, o)
	hosts := s.hosts(t, 8)
	s.joinsAndLeavesKilled(t, hosts, random, 10, 4)
}

// joinsAndLeavesKilled joins hosts and removes them. Meanwhile, it kills the operator the given number of times. No
// host may be rebooted or stay cordoned, and every host must be clean afterwards.
func (s *stage) joinsAndLeavesKilled(t *testing.T, hosts []*fleet.Host, random *rand.Rand, joining, leaving int) {
	t.Helper()
	boots := map[string]string{}
	for _, h := range hosts {
		boots[h.Name] = bootID(t, h)
	}
	s.add(t, hosts...)
	s.killed(t, joining, func() time.Duration { return time.Duration(200+random.IntN(1500)) * time.Millisecond })
	s.ready(t, hosts...)
	for _, h := range hosts {
		if bootID(t, h) != boots[h.Name] {
			t.Errorf("%s was rebooted", h.Name)
		}
		if node := s.node(t, h); node.Spec.Unschedulable {
			t.Errorf("%s stayed cordoned", h.Name)
		}
	}
	s.drop(t, hosts...)
	s.killed(t, leaving, func() time.Duration { return time.Duration(200+random.IntN(800)) * time.Millisecond })
	s.gone(t, hosts...)
	s.clean(t, hosts...)
}

// killed kills the operator and starts it again, the given number of times. It waits between two kills.
func (s *stage) killed(t *testing.T, times int, after func() time.Duration) {
	t.Helper()
	for range times {
		pause(t, after())
		must(t, s.Operator.Kill())
		must(t, s.Operator.Start(t.Context()))
	}
}

func TestTheAPIServerIsAwayForAWhile(t *testing.T) {
	t.Parallel()
	s := alone(t, options(4))
	hosts := s.hosts(t, 4)
	s.join(t, hosts[:2]...)
	s.add(t, hosts[2:]...)
	pause(t, 500*time.Millisecond)
	if err := s.Cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	// This outage is long enough that every watch and lease fails several times. A longer outage would only make the
	// test slower, because a daemon waits at most 30 s between two attempts. The tests of the daemon's loop cover a
	// longer outage with a fake clock.
	pause(t, 12*time.Second)
	if err := s.Cluster.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ready(t, hosts...)
	for _, h := range hosts[:2] {
		for _, name := range []string{contract.ServiceKubelet, contract.ServiceContainerd, contract.ServiceDaemon} {
			service, err := h.Machine.Host().Services.Get(t.Context(), name)
			if err != nil || service.State != "Running" {
				t.Errorf("%s: %s is %s, %v", h.Name, name, service.State, err)
			}
		}
	}
	if starts := s.Operator.Starts.Load(); starts != 1 {
		t.Errorf("the operator was started %d times", starts)
	}
	select {
	case err := <-s.Operator.Ended():
		t.Errorf("the operator exited by itself: %v", err)
	default:
	}
}

func TestAnOperatorRestartCostsNoConnection(t *testing.T) {
	t.Parallel()
	s := own(t, options(3))
	hosts := s.hosts(t, 3)
	s.join(t, hosts...)
	s.restartCostsNothing(t, hosts...)
}

// restartCostsNothing restarts the operator, and checks that it opens no connection to hosts that have joined.
func (s *stage) restartCostsNothing(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	s.killed(t, 1, func() time.Duration { return 0 })
	other := &corev1.ConfigMap{}
	s.await(t, "the operator to work again", func(ctx context.Context) (bool, string, error) {
		name := contract.ServicesConfigMapPrefix + s.instance(t, hosts[0]).Status.Revision
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace, Name: name}, other)
		return err == nil, "", client.IgnoreNotFound(err)
	})
	pause(t, 5*time.Second)
	for _, h := range hosts {
		if c := h.Server.Counters(); c.Connections != 1 {
			t.Errorf("%s: %d connections, want only the connection of its join", h.Name, c.Connections)
		}
	}
}

// pause waits in real time, because the real processes under test have no fake clock.
func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	case <-time.After(d):
	}
}
