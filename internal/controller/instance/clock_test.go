package instance

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/clock"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// hasRealClock starts an operator whose clock has a monotonic reading as well.
func (r *rig) hasRealClock(t *testing.T) {
	t.Helper()
	r.clock = clock.At(r.clock)
	r.restart(t)
}

// A82: if the clock is set while a node is switched, the revision must not count as failed.
func TestA82_AClockThatIsSetDuringASwitchBlamesNoRevision(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"forward": 2 * time.Hour, "back": -12 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1)
			r.hasRealClock(t)
			r.switched(t, 1)
			r.isReady(t, 1, false)
			r.advance(t, 1, time.Minute)
			r.clock = clock.Set(r.clock, by)
			dials := r.machine(1).Dials()
			for range 8 {
				r.advance(t, 1, time.Minute)
				i := r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
				if i.Status.FailedRevision != "" || r.machine(1).Dials() != dials {
					t.Fatalf("%d connections, failed %+v", r.machine(1).Dials()-dials, i.Status.FailedRevision)
				}
			}
			r.advance(t, 1, 2*time.Minute) // a switch that never ends must still fail when its real time is over
			if i := r.get(t, 1); i.Status.Upgrade() == nil || i.Status.Upgrade().Step != v1alpha1.StepRollingBack {
				t.Errorf("after verifyTimeout the status is %+v", i.Status)
			}
		})
	}
}

// A82: if the clock is set before a daemon has responded, the daemon must not count as unresponsive.
func TestA82_AClockThatIsSetMakesNoDaemonUnresponsive(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"forward": 2 * time.Hour, "back": -12 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1)
			r.hasRealClock(t)
			r.publish(t, first, contract.Manifest{})
			r.version = mirrored
			r.reconcile(t, 1)
			r.advance(t, 1, time.Minute)
			r.clock = clock.Set(r.clock, by)
			dials := r.machine(1).Dials()
			r.advance(t, 1, 3*time.Minute)
			if r.machine(1).Dials() != dials {
				t.Fatalf("the host is joined again too early: %+v", r.get(t, 1).Status)
			}
			r.advance(t, 1, 2*time.Minute)
			if r.machine(1).Dials() != dials+1 {
				t.Errorf("the daemon is dead, but its host is not joined again: %+v", r.get(t, 1).Status)
			}
		})
	}
}

// twenty returns hosts that have joined, so that the operator has no reason to dial them.
func twenty(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	for n := range 20 {
		address := key(n + 1).Name
		r.machines[address] = hosttest.New(fmt.Sprintf("node-%d", n+1))
		r.machines[address].Change(func(f *contract.HostFacts) {
			f.NodeIP, f.MachineID = address, fmt.Sprintf("machine-%d", n+1)
		})
		for _, o := range listed(n + 1) {
			if err := r.api.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		r.join(t, n+1)
	}
	r.hasRealClock(t)
	return r
}

// dialled reconciles each host. It returns how many hosts the operator dialled.
func (r *rig) dialled(t *testing.T) (count int) {
	t.Helper()
	for n := range 20 {
		before := r.machine(n + 1).Dials()
		r.reconcile(t, n+1)
		if r.machine(n+1).Dials() != before {
			count++
		}
		if held := r.parts.Slots.Held(); held > defaultJoins {
			t.Fatalf("%d slots are taken", held)
		}
	}
	return count
}

// unknownSince sets the Ready condition of all nodes to Unknown. ago is how long ago this changed, according to the
// condition.
func (r *rig) unknownSince(t *testing.T, ago time.Duration) {
	t.Helper()
	for n := range 20 {
		r.changes(t, n+1, func(node *corev1.Node) {
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
			node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(r.clock.Add(-ago).Round(0))
		})
	}
}

// A82: After a restore of etcd, or if the clock of a controller manager is behind, the status of nodes may say that
// they have been Unknown since before this operator started. The operator must not join their hosts again because of
// this.
func TestA82_NodesThatWereUnknownBeforeThisOperatorSawItAreNotJoinedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ago time.Duration
		// anew means that the operator starts now. For a minute, it then doesn't act on times that it reads from the
		// cluster.
		anew  bool
		after time.Duration
	}{
		"a restored etcd": {ago: 3 * 24 * time.Hour, after: 10 * time.Minute},
		"a restored etcd, and an operator that begins then": {ago: 3 * 24 * time.Hour, anew: true, after: time.Minute},
		"a controller manager that is behind":               {ago: 11 * time.Minute, after: 10 * time.Minute},
		"a controller manager that is ahead":                {ago: -11 * time.Minute, anew: true, after: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := twenty(t)
			r.dialled(t)
			r.clock = r.clock.Add(time.Hour)
			if test.anew {
				r.restart(t)
			}
			r.unknownSince(t, test.ago)
			if n := r.dialled(t); n != 0 {
				t.Fatalf("at first, %d hosts are dialled", n)
			}
			r.clock = r.clock.Add(test.after - time.Second)
			if n := r.dialled(t); n != 0 {
				t.Fatalf("before their time is over, %d hosts are dialled", n)
			}
			r.clock = r.clock.Add(time.Second)
			if n := r.dialled(t); n != 20 {
				t.Errorf("after their time is over, %d hosts are dialled", n)
			}
		})
	}
}

// A82: after a restore of etcd, an instance is in a step that began long ago. The step must get its full time once
// more.
func TestA82_AStepOfARestoredEtcdIsGivenItsTime(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.hasRealClock(t)
	r.switched(t, 1)
	was := r.get(t, 1)
	r.arrives(t, 1, second)
	r.clock = r.clock.Add(5 * time.Hour)
	r.reconcile(t, 1)
	r.changes(t, 1, func(n *corev1.Node) {
		n.Annotations[contract.RevisionAnnotation] = first
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
	})
	r.restores(t, was)
	for range 9 {
		r.advance(t, 1, time.Minute)
		if i := r.get(t, 1); i.Status.FailedRevision != "" || i.Status.Upgrade() == nil ||
			i.Status.Upgrade().Step != v1alpha1.StepSwitching {
			t.Fatalf("status %+v", i.Status)
		}
	}
}
