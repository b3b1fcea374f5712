package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubetesting "k8s.io/client-go/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// waitsInService checks that a host waits for a slot, and that the operator has not touched its node.
func (r *rig) waitsInService(t *testing.T, n int) *v1alpha1.WindowsInstance {
	t.Helper()
	i, node := r.get(t, n), r.node(t, n)
	if i.Status.HasSlot() || node.Spec.Unschedulable ||
		node.Annotations[contract.DesiredRevisionAnnotation] == r.version {
		t.Errorf("host %d is disrupted: cordoned %v, annotations %v, status %+v", n, node.Spec.Unschedulable,
			node.Annotations, i.Status)
	}
	return i
}

// stagedAll simulates daemons that have downloaded the payload of the revision.
func (r *rig) stagedAll(t *testing.T, hosts ...int) {
	t.Helper()
	for _, n := range hosts {
		r.reconcile(t, n)
		r.annotate(t, n, contract.StagedAnnotation, r.version)
	}
}

func TestABlipOfReadinessGoesPastNoBound(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2, 3)
	blocked := true
	r.evicts(&blocked)
	for n, pod := range []string{"a", "b", "c"} {
		r.pod(t, n+1, pod)
	}
	r.stagedAll(t, 1, 2, 3)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	for _, n := range []int{2, 3} {
		r.isReady(t, n, false)
		r.reconcile(t, n)
		r.waitsInService(t, n)
	}
	r.isReady(t, 1, false) // the node is NotReady, but its pods still run
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
}

// No node has a slot here. If a NotReady node counted as out of service at once, it would wrongly get the only slot.
func TestABlipOfReadinessGoesPastNoBoundWhereNobodyHasAPlace(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2, 3)
	r.stagedAll(t, 2, 3)
	// An administrator cordons a node, so the budget is used up.
	r.changes(t, 1, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	for _, n := range []int{2, 3} {
		r.isReady(t, n, false)
		r.reconcile(t, n)
		r.waitsInService(t, n)
	}
}

func TestNodesThatAreDownAreBoundedByTheBudgetToo(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2, 3)
	r.stagedAll(t, 1, 2, 3)
	for _, n := range []int{1, 2, 3} {
		r.isReady(t, n, false)
	}
	r.clock = r.clock.Add(6 * time.Minute)
	slots := 0
	for _, n := range []int{1, 2, 3} {
		r.reconcile(t, n)
		if r.get(t, n).Status.HasSlot() {
			slots++
		}
	}
	if slots != 1 {
		t.Errorf("%d nodes that are down have a slot, the budget is one", slots)
	}
}

// If the user sets a longer time, a NotReady node must count as in service for that time. This applies to the
// assignment of slots, and to the decision to join the node's host again.
func TestANodeThatIsNotReadyIsInServiceForAsLongAsTheUserSays(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.UnavailableAfter = &metav1.Duration{Duration: 20 * time.Minute}
	})
	r.stagedAll(t, 2)
	// An administrator cordons a node, so the budget is used up.
	r.changes(t, 1, func(n *corev1.Node) { n.Spec.Unschedulable = true })
	r.isReady(t, 2, false)
	r.reconcile(t, 2)
	dials := r.machine(2).Dials()
	for range 3 {
		r.advance(t, 2, 6*time.Minute)
		if i := r.waitsInService(t, 2); i.Status.Reason() != string(contract.ReasonBudgetExhausted) ||
			r.machine(2).Dials() != dials {
			t.Fatalf("the host does not wait for the budget: %+v", i.Status)
		}
	}
	r.advance(t, 2, 3*time.Minute)
	if r.machine(2).Dials() == dials {
		t.Errorf("the node is down, so a join disrupts nothing, but the host waits: %+v", r.get(t, 2).Status)
	}
}

func TestTheBoundsAreTheUsers(t *testing.T) {
	t.Parallel()
	config := &v1alpha1.WindowsMachineConfig{}
	if got := boundsOf(config); got != journey.DefaultBounds() {
		t.Errorf("without the user's settings, the limits are %+v", got)
	}
	minutes := func(n int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(n) * time.Minute} }
	rollout := &config.Spec.Rollout
	rollout.DrainTimeout, rollout.SettleTime = minutes(31), minutes(32)
	rollout.VerifyTimeout, rollout.UnavailableAfter = minutes(33), minutes(34)
	want := journey.Bounds{Drain: 31 * time.Minute, Settle: 32 * time.Minute, Verify: 33 * time.Minute,
		Unavailable: 34 * time.Minute}
	if got := boundsOf(config); got != want {
		t.Errorf("the limits are %+v", got)
	}
}

func TestABudgetOfZeroStopsNodesThatAreDownToo(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	none := intstr.FromInt32(0)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = &none })
	r.stagedAll(t, 1)
	r.isReady(t, 1, false)
	r.advance(t, 1, 6*time.Minute)
	r.waitsInService(t, 1)
}

func TestAClosedWindowHoldsNodesThatAreDownToo(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * 6",
			Duration: metav1.Duration{Duration: time.Hour}}}
	})
	r.stagedAll(t, 1)
	r.isReady(t, 1, false)
	r.advance(t, 1, 6*time.Minute)
	if i := r.waitsInService(t, 1); i.Status.Reason() != string(contract.ReasonMaintenanceWindowClosed) {
		t.Errorf("the host waits with the reason %s", i.Status.Reason())
	}
}

// The node becomes Ready again just before the operator requests the switch. The request conflicts with the newer
// version of the Node, and the next reconcile reads this version.
func TestANodeThatIsBackBeforeTheSwitchIsDrainedLikeAnyOther(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.stagedAll(t, 1)
	r.isReady(t, 1, false)
	r.clock = r.clock.Add(6 * time.Minute)
	r.saving = func() {
		if n := r.node(t, 1); n.Spec.Unschedulable {
			r.saving = nil
			r.isReady(t, 1, true)
		}
	}
	for range 5 {
		r.reconcile(t, 1)
	}
	if n := r.node(t, 1); n.Annotations[contract.DesiredRevisionAnnotation] != first {
		t.Fatalf("a node with pods was switched: %+v", r.get(t, 1).Status)
	}
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	blocked = false
	r.advance(t, 1, time.Second)
	r.advance(t, 1, time.Second)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// genuine returns hosts that have joined at a published revision. It also publishes a newer revision. The names of both
// revisions match the content of their manifests.
func genuine(t *testing.T, hosts ...int) (r *rig, held string) {
	t.Helper()
	r = newRig(t)
	for _, digest := range []string{strings.Repeat("0", 64), strings.Repeat("1", 64)} {
		r.manifest = contract.Manifest{
			Services: []contract.Service{{Name: "kubelet", Command: `C:\k\kubelet.exe`, Disruptive: true,
				Bootstrap: true}},
			Files: []contract.File{{Path: `C:\k\kubelet.exe`, Digest: digest, Size: 1, Services: []string{"kubelet"}}},
		}
		r.version = "1.0.0-" + r.manifest.Digest()[:contract.RevisionDigits]
		r.publish(t, r.version, r.manifest)
		if held != "" {
			break
		}
		held = r.version
		for _, n := range hosts {
			if err := r.api.Create(t.Context(), listed(n)[0]); err != nil {
				t.Fatal(err)
			}
			r.join(t, n)
		}
	}
	return r, held
}

// talks simulates daemons that can download payload.
func (r *rig) talks(t *testing.T, hosts ...int) {
	t.Helper()
	for _, n := range hosts {
		r.annotate(t, n, contract.BootIDAnnotation, "boot-1")
	}
}

// goesBack simulates a host that fails at the desired revision, is rolled back, and is in service again.
func (r *rig) goesBack(t *testing.T, n int, held string) {
	t.Helper()
	r.switched(t, n)
	r.annotate(t, n, contract.ApplyStatusAnnotation, "ServiceFailed: revision "+r.version+": kubelet ended; the host "+
		"is held at "+held)
	r.reconcile(t, n)
	r.changes(t, n, func(node *corev1.Node) {
		node.Annotations[contract.RevisionAnnotation] = held
		delete(node.Annotations, contract.ApplyStatusAnnotation)
	})
	r.reconcile(t, n)
	r.expect(t, n, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonUpdateFailed)
}

// joinsAgain simulates a host that joins again over SSH: its certificate requests are signed.
func (r *rig) joinsAgain(t *testing.T, n int) {
	t.Helper()
	for range 3 {
		r.sign(t)
		r.reconcile(t, n)
	}
}

func TestAHostThatIsRescuedComesBackAtTheRevisionThatItHeld(t *testing.T) {
	t.Parallel()
	closed := []v1alpha1.MaintenanceWindow{{Start: "0 22 * * 6", Duration: metav1.Duration{Duration: time.Hour}}}
	for name, arrange := range map[string]func(t *testing.T, r *rig, held string){
		"while the rollout is halted": func(t *testing.T, r *rig, held string) { t.Helper(); r.goesBack(t, 1, held) },
		"while no window is open": func(t *testing.T, r *rig, _ string) {
			t.Helper()
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaintenanceWindows = closed })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, held := genuine(t, 1, 2)
			r.talks(t, 1, 2)
			arrange(t, r, held)
			r.stagedAll(t, 2)
			r.isReady(t, 2, false)
			r.advance(t, 2, 11*time.Minute)
			dials := r.machine(2).Dials()
			if dials < 2 {
				t.Fatalf("%d connections", dials)
			}
			r.joinsAgain(t, 2)
			request := contract.BootstrapRequest{}
			if _, err := r.machine(2).Request(contract.VerbBootstrap, &request); err != nil {
				t.Fatal(err)
			}
			if request.Revision != held || r.node(t, 2).Annotations[contract.DesiredRevisionAnnotation] != held {
				t.Fatalf("the host is joined at revision %s, its Node should have %s", request.Revision,
					r.node(t, 2).Annotations[contract.DesiredRevisionAnnotation])
			}
			r.isReady(t, 2, true)
			r.reconcile(t, 2)
			r.reconcile(t, 2)
			if i := r.waitsInService(t, 2); i.Status.Phase != v1alpha1.PhaseReady || i.Status.Revision != held {
				t.Errorf("status %+v", i.Status)
			}
		})
	}
}

func TestANodeThatGoesBackAndIsNotReadyDoesNotGetTheFailedRevisionAgain(t *testing.T) {
	t.Parallel()
	r, held := genuine(t, 1)
	r.talks(t, 1)
	r.switched(t, 1)
	r.annotate(t, 1, contract.ApplyStatusAnnotation, "ServiceFailed: revision "+r.version+": kubelet ended; the host is "+
		"held at "+held)
	r.reconcile(t, 1)
	r.isReady(t, 1, false)
	dials := r.machine(1).Dials()
	r.advance(t, 1, 11*time.Minute)
	if r.machine(1).Dials() == dials {
		t.Fatal("the operator did not connect to the host")
	}
	r.joinsAgain(t, 1)
	if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != held {
		t.Fatalf("the daemon is told revision %s", told)
	}
	r.changes(t, 1, func(n *corev1.Node) {
		n.Annotations[contract.RevisionAnnotation] = held
		delete(n.Annotations, contract.ApplyStatusAnnotation)
	})
	r.isReady(t, 1, true)
	for range 3 {
		r.advance(t, 1, time.Second)
	}
	i := r.waitsInService(t, 1)
	if i.Status.Phase != v1alpha1.PhaseReady || i.Status.FailedRevision != r.version {
		t.Errorf("status %+v", i.Status)
	}
	// The daemon received the request for the failed revision once. The next try is a new upgrade, so it must wait for
	// an open window and for a slot.
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * 6",
			Duration: metav1.Duration{Duration: time.Hour}}}
	})
	for range 40 {
		r.advance(t, 1, time.Minute)
		r.waitsInService(t, 1)
	}
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	for range 5 {
		r.advance(t, 1, time.Minute)
		r.waitsInService(t, 1)
	}
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaintenanceWindows = nil })
	r.changes(t, 1, func(n *corev1.Node) { delete(n.Annotations, contract.RebootRequestedAnnotation) })
	for range 5 {
		r.advance(t, 1, time.Minute)
		r.waitsInService(t, 1)
	}
}

func TestFailingAtARevisionOverSSHHaltsTheRolloutAndGoesBack(t *testing.T) {
	t.Parallel()
	r, held := genuine(t, 1, 2)
	r.machine(1).Fail(string(contract.VerbBootstrap), contract.NewProblem(contract.ReasonServiceFailed,
		"kubelet ended right after its start"))
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if i.Status.FailedRevision != r.version || i.Status.HasSlot() {
		t.Fatalf("the failed revision is not in the status: %+v", i.Status)
	}
	dials := r.machine(2).Dials()
	r.reconcile(t, 2)
	if r.machine(2).Dials() != dials {
		t.Fatal("a second host goes to the failed revision")
	}
	r.machine(1).Fail(string(contract.VerbBootstrap), nil)
	r.clock = r.clock.Add(time.Minute)
	r.joinsAgain(t, 1)
	if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != held {
		t.Errorf("the daemon is told revision %s", told)
	}
	if i = r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || i.Status.FailedRevision == "" {
		t.Errorf("the phase is %s: %+v", i.Status.Phase, i.Status)
	}
	r.reconcile(t, 2)
	if i = r.get(t, 2); i.Status.Reason() != string(contract.ReasonRolloutHalted) || r.machine(2).Dials() != dials {
		t.Fatalf("a second host goes to the failed revision: %+v", i.Status)
	}
}

func TestAHostThatWasNotReadyWhenARevisionAppearedGoesBackToWhatHeld(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.isReady(t, 1, false)
	r.stagedAll(t, 1)
	r.advance(t, 1, 6*time.Minute)
	if i := r.get(t, 1); i.Status.Upgrade() == nil || i.Status.HeldRevision != first {
		t.Fatalf("the host has no previous revision: %+v", i.Status.Upgrade())
	}
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.annotate(t, 1, contract.ApplyStatusAnnotation, "PayloadMissing: revision "+second+": its daemon is at work")
	r.advance(t, 1, 11*time.Minute)
	if i := r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepRollingBack,
		contract.ReasonUpdateFailed); i.Status.FailedRevision != second {
		t.Fatalf("status %+v", i.Status)
	}
	if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != first {
		t.Errorf("the daemon is told revision %s", told)
	}
	r.annotate(t, 1, contract.RevisionAnnotation, first)
	r.isReady(t, 1, true)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonUpdateFailed)
	r.stagedAll(t, 2)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRolloutHalted)
	r.waitsInService(t, 2)
}

func TestAPodWhoseEvictionIsRefusedOtherwiseBlocksThatNodeOnly(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.refusesEvictions(errors.New("This pod has more than one PodDisruptionBudget"))
	r.pod(t, 1, "web")
	r.stagedAll(t, 1, 2)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	r.advance(t, 1, 11*time.Minute)
	i := r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDrainBlocked)
	if !strings.Contains(i.Status.Message(), "default/web") || !strings.Contains(i.Status.Message(), "more than one") {
		t.Errorf("the message is %s", i.Status.Message())
	}
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

func TestARevisionIsNotProvenWhileItsDaemonSaysThatItDoesNotHold(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.switched(t, 1)
	r.annotate(t, 1, contract.RevisionAnnotation, second)
	r.annotate(t, 1, contract.ApplyStatusAnnotation, "FileFailed: revision "+second+": the state can't be written")
	r.reconcile(t, 1)
	r.advance(t, 1, time.Minute)
	i := r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonRevisionPending)
	if !strings.Contains(i.Status.Message(), "can't be written") {
		t.Errorf("the message is %s", i.Status.Message())
	}
	r.advance(t, 1, 10*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepRollingBack, contract.ReasonUpdateFailed)
}

func TestAHostThatWaitsForWhatMayNeverComeKeepsNoPlace(t *testing.T) {
	t.Parallel()
	for name, lacks := range map[string]func(r *rig){
		"the SSH key": func(r *rig) {
			r.noKey = contract.NewProblem(contract.ReasonPrivateKeyMissing, "there is none")
		},
		"a join slot": func(r *rig) {
			r.parts.Slots.SetLimit(1)
			r.parts.Slots.Acquire(types.NamespacedName{Name: "somebody else"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := updating(t)
			r.annotate(t, 2, contract.BootIDAnnotation, "boot-1") // the daemon of the other host needs no SSH
			lacks(r)
			r.reconcile(t, 1)
			i := r.get(t, 1)
			if i.Status.HasSlot() || condition(i, v1alpha1.ConditionReady) != "True NodeReady" {
				t.Fatalf("the host holds a slot while it waits: %+v", i.Status)
			}
			r.reconcile(t, 2)
			r.annotate(t, 2, contract.StagedAnnotation, second)
			r.reconcile(t, 2)
			r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
		})
	}
}

// A host between two revisions has its slot before the operator connects to it.
func TestAHostThatIsJoinedInItsPlaceGivesItBackToWaitForWhatMayNeverCome(t *testing.T) {
	t.Parallel()
	for reason, lacks := range map[contract.Reason]func(r *rig){
		contract.ReasonPrivateKeyMissing: func(r *rig) {
			r.noKey = contract.NewProblem(contract.ReasonPrivateKeyMissing, "there is none")
		},
		contract.ReasonWaitingForSlot: func(r *rig) {
			r.parts.Slots.SetLimit(1)
			r.parts.Slots.Acquire(types.NamespacedName{Name: "somebody else"})
		},
		contract.ReasonClusterFactsIncomplete: func(r *rig) {
			r.broken["desired"] = contract.NewProblem(contract.ReasonClusterFactsIncomplete, "no CA")
		},
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			r := updating(t)
			r.machine(1).Fail(string(contract.VerbHandover), contract.NewProblem(contract.ReasonConnectionLost, "away"))
			r.reconcile(t, 1)
			r.machine(1).Fail(string(contract.VerbHandover), nil)
			hadPlace := false
			r.saving = func() { hadPlace = hadPlace || r.get(t, 1).Status.HasSlot() }
			lacks(r)
			for range 2 {
				r.advance(t, 1, time.Minute)
				if i := r.get(t, 1); !hadPlace || i.Status.HasSlot() || i.Status.Reason() != string(reason) {
					t.Fatalf("the host had a slot: %v, the status is %+v", hadPlace, i.Status)
				}
			}
		})
	}
}

func TestAHostWhoseLabelsAreRefusedKeepsNoSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1)
	r.register(t, 1, "")
	r.broken["node"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("only Windows"))
	for failures := range 3 {
		r.reconcile(t, 1)
		i := r.get(t, 1)
		if i.Status.Reason() != string(contract.ReasonLabelsRefused) || i.Status.Failures != int32(failures+1) ||
			policy.NextAttempt(i).IsZero() || r.parts.Slots.Held() != 0 {
			t.Fatalf("%d slots are held, status %+v", r.parts.Slots.Held(), i.Status)
		}
		r.clock = policy.NextAttempt(i)
	}
	delete(r.broken, "node")
	r.join(t, 1)
}

// hostsThatLeave returns three joined hosts that are deleted at the same time. While the returned bool is true, a
// disruption budget blocks the eviction of their pods.
func hostsThatLeave(t *testing.T, edit func(i *v1alpha1.WindowsInstance)) (*rig, *bool) {
	t.Helper()
	r := newRig(t, append(append(listed(1), listed(2)...), listed(3)...)...)
	blocked := true
	r.evicts(&blocked)
	for n, pod := range []string{"a", "b", "c"} {
		r.join(t, n+1)
		r.pod(t, n+1, pod)
	}
	for n := 1; n <= 3; n++ {
		if edit != nil {
			r.edit(t, n, edit)
		}
		r.remove(t, n)
	}
	return r, &blocked
}

// cordoned returns the number of cordoned nodes.
func (r *rig) cordoned(t *testing.T) (count int) {
	t.Helper()
	list := &corev1.NodeList{}
	if err := r.api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.Unschedulable {
			count++
		}
	}
	return count
}

func TestRemovalsTakePlacesOfTheBudget(t *testing.T) {
	t.Parallel()
	r, blocked := hostsThatLeave(t, nil)
	for range 2 {
		for n := 1; n <= 3; n++ {
			r.reconcile(t, n)
		}
	}
	if n := r.cordoned(t); n != 1 {
		t.Fatalf("%d nodes are drained at once", n)
	}
	i := r.get(t, 2)
	if i.Status.Phase != v1alpha1.PhaseReady || condition(i, v1alpha1.ConditionReady) != "True NodeReady" ||
		fixOf(i) == "" {
		t.Errorf("the waiting instance shows %+v", i.Status)
	}
	*blocked = false
	for range 4 {
		for n := 1; n <= 3; n++ {
			if r.exists(t, n) {
				r.advance(t, n, time.Minute)
			}
		}
		if n := r.cordoned(t); n > 1 {
			t.Fatalf("%d nodes are drained at once", n)
		}
	}
	for n := 1; n <= 3; n++ {
		if r.exists(t, n) {
			t.Errorf("host %d still exists: %+v", n, r.get(t, n).Status)
		}
	}
}

func TestSeveralLeaveAtOnceAsTheBudgetAllows(t *testing.T) {
	t.Parallel()
	r, _ := hostsThatLeave(t, nil)
	two := intstr.FromInt32(2)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.MaxUnavailable = &two
		c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * 6",
			Duration: metav1.Duration{Duration: time.Hour}}} // windows don't delay removals
	})
	for n := 1; n <= 3; n++ {
		r.reconcile(t, n)
	}
	if n := r.cordoned(t); n != 2 {
		t.Errorf("%d nodes are drained at once", n)
	}
}

func TestABudgetOfZeroHoldsRemovalsAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	r, _ := hostsThatLeave(t, nil)
	none := intstr.FromInt32(0)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = &none })
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if r.cordoned(t) != 0 || !strings.Contains(i.Status.Message(), "maxUnavailable is 0") ||
		!strings.Contains(fixOf(i), "maxUnavailable") || !strings.Contains(fixOf(i), "Force") {
		t.Errorf("%d nodes are drained; the message is %q, the fix %q", r.cordoned(t), i.Status.Message(), fixOf(i))
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.RemovalPolicy = v1alpha1.RemovalForce })
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Error("a forced removal waits for the budget")
	}
}

func TestAHostThatNeverBecameANodeLeavesWithoutAPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(listed(1), listed(2)...)...)
	r.join(t, 1)
	none := intstr.FromInt32(0)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = &none })
	r.machine(2).Fail(hosttest.Dialling, unreachable())
	r.reconcile(t, 2)
	r.remove(t, 2)
	r.reconcile(t, 2)
	if r.exists(t, 2) {
		t.Errorf("the host waits: %+v", r.get(t, 2).Status)
	}
}

// Pods that tolerate the cordon are created again as soon as they have ended. They end at different times, so one of
// them is still ending whenever the operator checks. The drain must succeed nevertheless.
func TestPodsThatComeBackAfterEachEvictionDoNotHoldADrainForEver(t *testing.T) {
	t.Parallel()
	const grace = 30 * time.Second
	r := staged(t, 1)
	of, made := corev1.SchemeGroupVersion.WithResource("pods"), 0
	start := func() {
		made++
		if err := r.pods.Tracker().Create(of, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: fmt.Sprintf("agent-%d", made), CreationTimestamp: metav1.NewTime(r.clock)}, Spec: corev1.PodSpec{NodeName: r.machine(1).Facts().Hostname}},
			"default"); err != nil {
			t.Fatal(err)
		}
	}
	r.pods.PrependReactor("create", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
		create, is := a.(kubetesting.CreateAction)
		eviction, isEviction := create.GetObject().(*policyv1.Eviction)
		if !is || !isEviction {
			return false, nil, nil
		}
		pod, err := r.pods.Tracker().Get(of, "default", eviction.Name)
		if err != nil {
			return true, nil, err
		}
		told, is := pod.DeepCopyObject().(*corev1.Pod)
		if !is {
			return true, nil, errors.New("no pod")
		}
		told.DeletionTimestamp, told.DeletionGracePeriodSeconds = &metav1.Time{Time: r.clock.Add(grace)}, new(int64(grace.Seconds()))
		return true, nil, r.pods.Tracker().Update(of, told, "default")
	})
	start()
	start()
	r.reconcile(t, 1)
	r.annotate(t, 1, contract.StagedAnnotation, second)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	for began := r.clock; r.get(t, 1).Status.Upgrade().Step == v1alpha1.StepDraining; r.advance(t, 1, 5*time.Second) {
		if took := r.clock.Sub(began); took > 12*time.Minute {
			t.Fatalf("still draining after %s, after %d pods", took, made)
		}
		list, err := r.pods.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for n, pod := range list.Items {
			takes := time.Duration(10+5*n) * time.Second
			if told := pod.DeletionTimestamp; told == nil || r.clock.Before(told.Add(takes-grace)) {
				continue
			}
			if err = r.pods.Tracker().Delete(of, "default", pod.Name); err != nil {
				t.Fatal(err)
			}
			start()
		}
	}
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDrainBlocked)
}

// The operator writes a node's labels after the disruption. So only then can the API server refuse them.
func TestANodeWhoseLabelsAreRefusedKeepsNoPlace(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.refusesEvictions(apierrors.NewTooManyRequests("a disruption budget", 1))
	r.pod(t, 1, "web")
	r.stagedAll(t, 1, 2)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Labels = map[string]string{"tier": "refused"} })
	r.reconcile(t, 1)
	if _, is := r.node(t, 1).Labels["tier"]; is {
		t.Error("labels are written during the drain")
	}
	r.advance(t, 1, 11*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDrainBlocked)
	if r.node(t, 1).Spec.Unschedulable {
		t.Error("the node stays cordoned")
	}
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.broken["node"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("no tiers"))
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.HasSlot() || i.Status.Reason() != string(contract.ReasonLabelsRefused) {
		t.Errorf("status %+v", i.Status)
	}
	delete(r.broken, "node")
	r.reconcile(t, 1)
	if is := r.node(t, 1).Labels["tier"]; is != "refused" {
		t.Errorf("labels %v are not updated", r.node(t, 1).Labels)
	}
}

// If a host loses power before its daemon has received a revision, this must not count as a failure of the revision.
func TestAHostThatLosesPowerBeforeItsTurnHaltsNoRollout(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2))
	})
	r.stagedAll(t, 1, 2)
	r.isReady(t, 1, false)
	r.slow = hosttestUnreachable
	r.advance(t, 1, time.Second)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.advance(t, 1, v1alpha1.DefaultVerifyTimeout+time.Second)
	i := r.get(t, 1)
	if i.Status.FailedRevision != "" || i.Status.Upgrade() == nil || i.Status.Upgrade().Step != v1alpha1.StepRollingBack ||
		!strings.Contains(i.Status.Upgrade().Message, "did not respond") {
		t.Fatalf("%+v %+v", i.Status.FailedRevision, i.Status.Upgrade())
	}
	for range 5 {
		r.advance(t, 1, 6*time.Minute)
		if i = r.get(t, 1); i.Status.HasSlot() {
			t.Fatalf("the host keeps its slot: %+v", i.Status)
		}
	}
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.arrives(t, 2, second)

	r.slow = nil
	r.annotate(t, 1, contract.RevisionAnnotation, r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation])
	r.isReady(t, 1, true)
	r.advance(t, 1, 6*time.Minute)
	i = r.get(t, 1)
	if r.node(t, 1).Spec.Unschedulable || i.Status.Revision != first || i.Status.Upgrade() == nil ||
		i.Status.Upgrade().Step != v1alpha1.StepWaiting {
		t.Fatalf("the host did not return to its previous revision: %+v %+v", i.Status, i.Status.Upgrade())
	}
	r.advance(t, 1, 2*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.arrives(t, 1, second)
	if i = r.get(t, 1); i.Status.Revision != second || i.Status.HasSlot() {
		t.Errorf("status %+v", i.Status)
	}
}

// A policy or a webhook may refuse every write of a Node.
func TestAnUncordonThatIsRefusedIsReported(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(t *testing.T, r *rig) (phase v1alpha1.Phase){
		"after an upgrade": func(t *testing.T, r *rig) v1alpha1.Phase {
			t.Helper()
			r.switched(t, 1)
			r.annotate(t, 1, contract.RevisionAnnotation, second)
			r.reconcile(t, 1)
			return v1alpha1.PhaseUpdating
		},
		"after a reboot": func(t *testing.T, r *rig) v1alpha1.Phase {
			t.Helper()
			r.version = first
			r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
			r.reconcile(t, 1)
			r.changes(t, 1, func(n *corev1.Node) {
				n.Annotations[contract.BootIDAnnotation] = "boot-2"
				delete(n.Annotations, contract.RebootRequestedAnnotation)
				delete(n.Annotations, contract.RebootApprovedAnnotation)
			})
			r.reconcile(t, 1)
			return v1alpha1.PhaseRebooting
		},
	} {
		for code, err := range map[string]error{
			"403": apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("hands off")),
			"500": apierrors.NewInternalError(errors.New("hands off")),
		} {
			t.Run(name+" with "+code, func(t *testing.T) {
				t.Parallel()
				r := staged(t, 1)
				phase := ends(t, r)
				r.broken["node"] = err
				r.clock = r.clock.Add(time.Minute)
				again := r.reconcile(t, 1).RequeueAfter
				i := r.expect(t, 1, phase, v1alpha1.StepVerifying, contract.ReasonAPICallFailed)
				if !strings.Contains(i.Status.Message(), "hands off") || again < 10*time.Second {
					t.Errorf("the uncordon is retried after %s, the message is %s", again, i.Status.Message())
				}
				delete(r.broken, "node")
				r.advance(t, 1, time.Minute)
				i = r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
				if i.Status.HasSlot() || r.node(t, 1).Spec.Unschedulable {
					t.Errorf("status %+v", i.Status)
				}
			})
		}
	}
}

func TestACordonThatIsRefusedHoldsAPlaceNoLongerThanADrain(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]func(t *testing.T, r *rig) v1alpha1.Phase{
		"for an upgrade": func(t *testing.T, r *rig) v1alpha1.Phase {
			t.Helper()
			r.stagedAll(t, 1)
			return v1alpha1.PhaseUpdating
		},
		"for a reboot": func(t *testing.T, r *rig) v1alpha1.Phase {
			t.Helper()
			r.version = first
			r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
			return v1alpha1.PhaseRebooting
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1)
			phase := begins(t, r)
			r.broken["node"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("hands off"))
			r.reconcile(t, 1)
			i := r.expect(t, 1, phase, v1alpha1.StepDraining, contract.ReasonAPICallFailed)
			if !i.Status.HasSlot() {
				t.Fatalf("status %+v", i.Status)
			}
			r.restart(t)
			r.reconcile(t, 1)
			r.advance(t, 1, 11*time.Minute)
			i = r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDrainBlocked)
			if i.Status.HasSlot() || !strings.Contains(i.Status.Message(), "hands off") {
				t.Errorf("status %+v", i.Status)
			}
		})
	}
}

func TestACordonThatIsRefusedHoldsThePlaceOfARemovalNoLongerThanADrain(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.broken["node"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("hands off"))
	r.remove(t, 1)
	r.reconcile(t, 1)
	i := r.expect(t, 1, v1alpha1.PhaseRemoving, "", contract.ReasonAPICallFailed)
	if !i.Status.HasSlot() {
		t.Fatalf("status %+v", i.Status)
	}
	r.restart(t)
	r.reconcile(t, 1)
	r.advance(t, 1, 11*time.Minute)
	i = r.expect(t, 1, v1alpha1.PhaseRemoving, "", contract.ReasonDrainBlocked)
	if i.Status.HasSlot() || !strings.Contains(i.Status.Message(), "hands off") {
		t.Errorf("status %+v", i.Status)
	}
	delete(r.broken, "node")
	r.advance(t, 1, 11*time.Minute)
	if r.exists(t, 1) {
		t.Errorf("the instance still exists: %+v", r.get(t, 1).Status)
	}
}

func TestARebootThatMayNotBeRequestedHoldsAPlaceNoLongerThanOneThatTakesTooLong(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.version = first
	r.broken["approval"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("hands off"))
	r.changes(t, 1, func(n *corev1.Node) {
		n.Annotations[contract.RebootRequestedAnnotation], n.Annotations[contract.BootIDAnnotation] = "", "boot-1"
	})
	again := r.reconcile(t, 1).RequeueAfter
	i := r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonAPICallFailed)
	if !i.Status.HasSlot() || again > time.Minute {
		t.Fatalf("the reboot is retried after %s, status %+v", again, i.Status)
	}
	r.advance(t, 1, time.Hour)
	i = r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonAPICallFailed)
	if i.Status.HasSlot() || !strings.Contains(i.Status.Message(), "hands off") ||
		r.node(t, 1).Spec.Unschedulable {
		t.Errorf("status %+v", i.Status)
	}
}

// The Node with this name belongs to another machine. Only a person can fix this, so the host must not keep its slot.
func TestAnInstanceWhoseNodeIsAnothersKeepsNoPlace(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.switched(t, 1)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.ProviderID = "cloud:///1" })
	r.changes(t, 1, func(n *corev1.Node) { n.Spec.ProviderID = "cloud:///2" })
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonNodeForeign) || i.Status.HasSlot() {
		t.Errorf("status %+v", i.Status)
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.ProviderID = "" })
	r.arrives(t, 1, second)
	r.advance(t, 1, time.Minute)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

func TestADrainBeginsAnewWithEachPlace(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.stagedAll(t, 1)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	r.advance(t, 1, 9*time.Minute)
	r.remove(t, 1)
	r.advance(t, 1, 2*time.Minute)
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonDraining) {
		t.Errorf("two minutes after its removal began: %s: %s", i.Status.Reason(), i.Status.Message())
	}
}

// An operator that has lost its lease but doesn't know this yet writes an outdated status. This write must not remove
// the slot that the new operator assigned.
func TestAStaleOperatorErasesNoClaim(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	stale := r.Reconciler
	before := r.get(t, 1)
	r.restart(t) // a second operator takes over
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.stagedAll(t, 1)
	r.reconcile(t, 1)
	if !r.get(t, 1).Status.HasSlot() {
		t.Fatal("the new operator did not assign a slot")
	}
	r.version, r.key.Hash = first, "another" // the stale operator would write the result of this key
	// At first, its cache lags behind. Later, the cache contains what the new operator wrote.
	for range 3 {
		r.stale = before
		_, err := stale.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)})
		if r.stale = nil; err != nil {
			t.Logf("the stale operator returns %v", err)
		}
		if !r.get(t, 1).Status.HasSlot() {
			t.Fatal("the slot is erased")
		}
		before = r.get(t, 1)
	}
}

// A host that failed during an upgrade over SSH is out of service. It can return to its previous revision without a
// slot. So the operator must not join it at a revision for which it needs a slot.
func TestAHostOutOfServiceComesBackOverSSHAtTheRevisionThatItHeld(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, r *rig){
		"the rollout halts": func(t *testing.T, r *rig) {
			failed := r.get(t, 2)
			failed.Status.FailedRevision = r.version
			if err := r.api.Status().Update(t.Context(), failed); err != nil {
				t.Fatal(err)
			}
		},
		"the rollout continues": func(*testing.T, *rig) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, held := genuine(t, 1, 2)
			r.machine(1).Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonUnreachable, "away"))
			r.reconcile(t, 1)
			if i := r.get(t, 1); i.Status.Upgrade() == nil || i.Status.Upgrade().Step != v1alpha1.StepSwitching ||
				i.Status.HasSlot() {
				t.Fatalf("the host is not joined, although this needs no slot: %+v", i.Status)
			}
			r.isReady(t, 1, false)
			meanwhile(t, r)
			r.machine(1).Fail(hosttest.Dialling, nil)
			r.clock = r.clock.Add(6 * time.Minute)
			for range 6 {
				r.advance(t, 1, time.Minute)
				if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != held {
					t.Fatalf("the daemon is told revision %s: %+v", told, r.get(t, 1).Status)
				}
			}
			if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseConfirming || i.Status.Revision == r.version {
				t.Errorf("the host did not return to service: %+v", i.Status)
			}
		})
	}
}

// If the host's previous revision is no longer published, the host can only join at the desired revision. If the
// rollout is halted, the host must not be joined at it.
func TestAHostThatLostWhatItHeldIsNotJoinedAtARevisionThatIsHalted(t *testing.T) {
	t.Parallel()
	r, _ := genuine(t, 1, 2)
	failed := r.get(t, 2)
	failed.Status.FailedRevision = r.version
	if err := r.api.Status().Update(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	r.isReady(t, 1, false)
	r.clock = r.clock.Add(6 * time.Minute)
	for name, gone := range map[string]func(status *v1alpha1.WindowsInstanceStatus){
		"its files": func(s *v1alpha1.WindowsInstanceStatus) { s.DesiredRevision, s.Activity = "", nil },
		"its manifest": func(s *v1alpha1.WindowsInstanceStatus) {
			s.HeldRevision, s.DesiredRevision = "1.0.0-0000", "1.0.0-0000"
		},
	} {
		for _, ready := range []bool{false, true} {
			r.isReady(t, 1, ready)
			r.clock = r.clock.Add(6 * time.Minute)
			i := r.get(t, 1)
			gone(&i.Status)
			i.Status.Phase = v1alpha1.PhasePending
			verdict, err := r.mayJoin(t, i)
			if err != nil || verdict.Allowed || verdict.Reason != contract.ReasonRolloutHalted {
				t.Errorf("%s, Ready %v: %+v, %v", name, ready, verdict, err)
			}
		}
	}
}

// stuck returns two hosts. The first host must be joined again over SSH, because its daemon can't report. The second
// host only waits for a slot.
func stuck(t *testing.T) *rig {
	t.Helper()
	r := staged(t, 1, 2)
	r.clock = r.clock.Add(24 * time.Hour)
	r.stagedAll(t, 2)
	r.expires(t, 1)
	return r
}

// overtaken checks that the second host gets its slot while the operator works on the first host. This work needs no
// slot.
func (r *rig) overtaken(t *testing.T, doing string) {
	t.Helper()
	if i := r.get(t, 1); i.Status.HasSlot() {
		t.Errorf("while %s, the first host has a slot: %+v", doing, i.Status)
	}
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

func TestAHostKeepsNoPlaceFromOthersWhileItIsDialled(t *testing.T) {
	t.Parallel()
	r := stuck(t)
	dialled := 0
	r.slow = func(context.Context) error {
		dialled++
		r.overtaken(t, "it is dialled")
		return unreachable()
	}
	r.reconcile(t, 1)
	if i := r.expect(t, 1, v1alpha1.PhaseConnecting, v1alpha1.StepSwitching, contract.ReasonUnreachable); dialled != 1 ||
		i.Status.HasSlot() || i.Status.Failures != 1 {
		t.Errorf("dialled %d times, status %+v", dialled, i.Status)
	}
}

func TestADeadDaemonsHostKeepsNoPlaceFromOthersWhileItIsDialled(t *testing.T) {
	t.Parallel()
	r := unresponsive(t, 1, 2)
	for _, n := range []int{1, 2} {
		r.annotate(t, n, contract.RevisionAnnotation, mirrored)
		r.reconcile(t, n)
	}
	r.expires(t, 1)
	r.annotate(t, 2, contract.RebootRequestedAnnotation, "")
	dialled := 0
	r.slow = func(context.Context) error {
		dialled++
		if i := r.get(t, 1); i.Status.HasSlot() {
			t.Errorf("status %+v", i.Status)
		}
		r.reconcile(t, 2)
		r.expect(t, 2, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
		return unreachable()
	}
	r.reconcile(t, 1)
	if i := r.get(t, 1); dialled != 1 || i.Status.Reason() != string(contract.ReasonUnreachable) {
		t.Errorf("dialled %d times, status %+v", dialled, i.Status)
	}
}

// If a host loses its slot while the operator connects to it, the host must keep its slot the next time. Otherwise,
// hosts that the operator can connect to faster would always be first.
func TestAHostKeepsNoPlaceFromOthersWhileItsPayloadIsSent(t *testing.T) {
	t.Parallel()
	r := stuck(t)
	r.machine(1).Answer(contract.VerbPreflight, contract.PreflightAnswer{Facts: r.machine(1).Facts(),
		Missing: []contract.Blob{{Digest: strings.Repeat("a", 64), Size: 6}}})
	sent := 0
	r.sending = func(blobs []contract.Blob) {
		sent++
		r.overtaken(t, "payload is sent to it")
		if want := strings.Repeat(map[int]string{1: "d", 2: "a"}[sent], 64); blobs[0].Digest != want {
			t.Errorf("transfer %d sends %v", sent, blobs)
		}
	}
	r.reconcile(t, 1)
	i, node := r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDaemonUnresponsive), r.node(t, 1)
	if sent != 2 || i.Status.HasSlot() || r.machine(1).Open() != 0 || r.parts.Slots.Held() != 0 ||
		node.Spec.Unschedulable || len(i.Status.BootstrapCredentials) > 0 {
		t.Fatalf("sent %d times, %d connections, %d slots, status %+v", sent, r.machine(1).Open(), r.parts.Slots.Held(),
			i.Status)
	}
	r.sending = nil
	r.machine(1).Answer(contract.VerbPreflight, nil)
	r.arrives(t, 2, second)
	for _, kept := range []bool{true, false} { // the host keeps its slot only once
		dialled := 0
		r.slow = func(context.Context) error {
			if dialled++; (r.get(t, 1).Status.HasSlot()) != kept {
				t.Errorf("want the slot kept: %v, status %+v", kept, r.get(t, 1).Status)
			}
			return unreachable()
		}
		r.advance(t, 1, time.Minute)
		if dialled != 1 {
			t.Fatalf("dialled %d times, status %+v", dialled, r.get(t, 1).Status)
		}
	}
	r.slow = nil
	r.advance(t, 1, time.Minute)
	r.rescued(t, 1)
}

// If a node is in service while its host waits for a join slot, the host must not lose its position in the queue.
func TestAHostThatIsUpgradedOverSSHKeepsItsTurnForAJoinSlot(t *testing.T) {
	t.Parallel()
	r := stuck(t)
	r.parts.Slots.SetLimit(1)
	r.parts.Slots.Acquire(types.NamespacedName{Name: "somebody else"})
	before := r.machine(1).Dials()
	for range 3 {
		r.reconcile(t, 1)
		if i := r.get(t, 1); r.machine(1).Open() != 1 || r.machine(1).Dials() != before+1 || i.Status.HasSlot() {
			t.Fatalf("%d connections of %d dials, status %+v", r.machine(1).Open(), r.machine(1).Dials(), i.Status)
		}
	}
	r.parts.Slots.Acquire(types.NamespacedName{Name: "another"})
	r.parts.Slots.Release(types.NamespacedName{Name: "somebody else"})
	if r.parts.Slots.Acquire(types.NamespacedName{Name: "another"}) {
		t.Error("a host that came later gets the slot")
	}
}

func TestAHostInServiceIsNotPreparedWithoutAPlace(t *testing.T) {
	t.Parallel()
	r := stuck(t)
	r.machine(1).Answer(contract.VerbPreflight, contract.PreflightAnswer{Facts: r.machine(1).Facts(),
		NeedsPrepare: []string{"Containers"}})
	r.machine(1).Answer(contract.VerbPrepare, contract.PrepareAnswer{Rebooting: true, BootID: "boot-1"})
	r.slow, r.reaches = hosttestUnreachable, func(string) bool { r.overtaken(t, "it is dialled"); return true }
	r.reconcile(t, 1)
	if i := r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting,
		contract.ReasonDaemonUnresponsive); r.calls(1, contract.VerbPrepare) != 0 {
		t.Fatalf("the host is rebooted: %+v", i.Status)
	}
	r.arrives(t, 2, second)
	r.slow = nil
	r.advance(t, 1, time.Minute)
	for range 2 { // the host must keep its slot while it reboots
		i := r.get(t, 1)
		if i.Status.Reason() != string(contract.ReasonRebooting) || !i.Status.HasSlot() || r.calls(1, contract.VerbPrepare) != 1 {
			t.Fatalf("status %+v", i.Status)
		}
		r.machine(1).Fail(hosttest.Dialling, unreachable())
		r.advance(t, 1, 10*time.Second)
	}
}
