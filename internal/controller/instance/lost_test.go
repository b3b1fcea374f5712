package instance

import (
	"cmp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// restored returns two hosts that have joined. A user has restored the first instance from a backup, without its
// status. The node of the second host is not Ready.
func restored(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, append(listed(1), listed(2)...)...)
	r.join(t, 1)
	r.join(t, 2)
	blocked := false
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	i := r.get(t, 1)
	i.Status = v1alpha1.WindowsInstanceStatus{}
	if err := r.api.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	r.isAway(t, 2, true)
	r.restart(t)
	return r
}

// isAway deletes a node from the cluster if away is true, and otherwise restores it.
func (r *rig) isAway(t *testing.T, n int, away bool) {
	t.Helper()
	r.changes(t, n, func(n *corev1.Node) {
		n.Status.Conditions[0].Status = corev1.ConditionTrue
		if away {
			n.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(r.clock)
	})
}

// isUntouched reports whether the operator has changed neither a host's node nor its pods.
func (r *rig) isUntouched(t *testing.T, n int) bool {
	t.Helper()
	pods, err := r.pods.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return !r.node(t, n).Spec.Unschedulable && len(pods.Items) == 1 && r.calls(n, contract.VerbBootstrap) == 1 &&
		r.cleanups(n) == 0
}

// Because the status was lost, the join looks like the host's first join. But the host's node is in service.
func TestAHostWhoseStatusWasLostTakesAPlaceBeforeItIsJoinedAgain(t *testing.T) {
	t.Parallel()
	r := restored(t)
	for range 3 {
		r.reconcile(t, 1)
		r.clock = r.clock.Add(time.Minute)
	}
	i := r.expect(t, 1, v1alpha1.PhasePending, "", contract.ReasonBudgetExhausted)
	if !r.isUntouched(t, 1) || i.Status.HasSlot() || i.Status.Failures != 0 || r.parts.Slots.Held() != 0 {
		t.Fatalf("the node is disrupted while another node is away: %+v", i.Status)
	}
	r.isAway(t, 2, false)
	r.reconcile(t, 1)
	if i = r.get(t, 1); !i.Status.HasSlot() {
		t.Fatalf("the host is joined without a slot: %+v", i.Status)
	}
	for range 4 {
		r.reconcile(t, 1)
		r.sign(t)
	}
	if i = r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || !i.Status.Joined() || i.Status.HasSlot() ||
		r.calls(1, contract.VerbBootstrap) != 2 || r.node(t, 1).Spec.Unschedulable {
		t.Errorf("the host does not join: %+v", i.Status)
	}
}

func TestAHostWhoseStatusWasLostTakesAPlaceBeforeItIsRemoved(t *testing.T) {
	t.Parallel()
	r := restored(t)
	r.reconcile(t, 1) // the operator finds the host's Node
	r.remove(t, 1)
	r.reconcile(t, 1)
	if i := r.get(t, 1); !r.isUntouched(t, 1) || i.Status.Reason() != string(contract.ReasonRemovalPending) {
		t.Fatalf("the host is removed while another node is away: %+v", i.Status)
	}
	r.isAway(t, 2, false)
	for range 3 {
		r.clock = r.clock.Add(time.Second)
		if r.exists(t, 1) {
			r.reconcile(t, 1)
		}
	}
	if r.exists(t, 1) || r.cleanups(1) != 1 {
		t.Errorf("the instance is not removed; its host was cleaned %d times", r.cleanups(1))
	}
}

// The CRD of instances was deleted and created again. The operator creates new instances, while their hosts still run
// pods.
func TestA80_HostsRejoinUntouchedWhenTheKindOfInstancesIsCreatedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		desired string
		closed  bool
		reason  contract.Reason
	}{
		"at the desired revision": {desired: first},
		"at an older one":         {desired: second, reason: contract.ReasonBudgetExhausted},
		"at an older one, and no maintenance window is open": {desired: second, closed: true,
			reason: contract.ReasonMaintenanceWindowClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, append(listed(1), listed(2)...)...)
			r.publish(t, first, contract.Manifest{})
			r.join(t, 1)
			r.join(t, 2)
			blocked := false
			r.evicts(&blocked)
			r.pod(t, 1, "web")
			if test.closed {
				r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
					c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 0 1 6 *",
						Duration: metav1.Duration{Duration: time.Hour}}}
				})
			} else {
				r.isAway(t, 2, true) // so the budget is used up
			}
			r.kind.DeletionTimestamp = new(metav1.NewTime(r.clock))
			r.remove(t, 1)
			r.reconcile(t, 1)
			r.kind = metav1.ObjectMeta{}
			again := listed(1)[0]
			again.SetUID("again")
			if err := r.api.Create(t.Context(), again); err != nil {
				t.Fatal(err)
			}
			r.version = test.desired
			r.machine(1).Answer(contract.VerbPreflight, contract.PreflightAnswer{Facts: r.machine(1).Facts(), Joined: true,
				Running: true})
			for range 4 {
				r.reconcile(t, 1)
				r.clock = r.clock.Add(time.Minute)
			}
			i := r.get(t, 1)
			if i.Status.Phase != v1alpha1.PhaseReady || i.Status.Reason() != cmp.Or(string(test.reason), "NodeReady") {
				t.Errorf("the status is %s, %s: %s", i.Status.Phase, i.Status.Reason(), i.Status.Message())
			}
			if !r.isUntouched(t, 1) || !i.Status.Joined() || i.Status.HeldRevision != first ||
				r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation] != first || i.Status.HostKey == "" {
				t.Errorf("node %+v, status %+v", r.node(t, 1), i.Status)
			}
			if r.parts.Slots.Held() != 0 || r.machine(1).Open() != 0 || i.Status.HasSlot() {
				t.Errorf("the host keeps %d slots, %d connections, and %v", r.parts.Slots.Held(), r.machine(1).Open(),
					i.Status.Slot)
			}
		})
	}
}

// Until a first join is complete, its Node has no pods, so the join needs no slot.
func TestAFirstJoinThatIsTakenOverByAnotherOperatorTakesNoPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(listed(1), listed(2)...)...)
	r.join(t, 2)
	r.isAway(t, 2, true)
	r.reconcile(t, 1)
	r.register(t, 1, "")
	r.reconcile(t, 1)
	r.restart(t)
	for range 3 {
		r.reconcile(t, 1)
		r.sign(t)
	}
	r.register(t, 1, first)
	r.reconcile(t, 1)
	if i := r.get(t, 1); !i.Status.Joined() {
		t.Errorf("the host waits: %+v", i.Status)
	}
}
