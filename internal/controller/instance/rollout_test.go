package instance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// updating returns two hosts that have joined. A new revision, for which the operator needs SSH, is desired.
func updating(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, append(listed(1), listed(2)...)...)
	r.join(t, 1)
	r.join(t, 2)
	r.version = second
	return r
}

func TestAHostThatWaitsForItsUpdateStaysReady(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.reconcile(t, 1)
	if result := r.reconcile(t, 2); result.RequeueAfter != budgetRetry {
		t.Errorf("reconciled again after %s", result.RequeueAfter)
	}
	one, two := r.get(t, 1), r.get(t, 2)
	if one.Status.Phase != v1alpha1.PhaseConfirming || r.machine(2).Dials() != 1 {
		t.Fatalf("the first host is in %s; %d connections to the second host", one.Status.Phase, r.machine(2).Dials())
	}
	if two.Status.Phase != v1alpha1.PhaseReady || condition(two, v1alpha1.ConditionReady) != "True NodeReady" ||
		condition(two, v1alpha1.ConditionProgressing) != "True BudgetExhausted" ||
		two.Status.Reason() != string(contract.ReasonBudgetExhausted) {
		t.Errorf("the waiting instance shows %+v", two.Status)
	}
	if condition(one, v1alpha1.ConditionReady) != "False RevisionPending" {
		t.Errorf("the updating instance shows %+v", one.Status)
	}
	writes := r.statusWrites
	r.reconcile(t, 2)
	if r.statusWrites != writes {
		t.Error("the status of a waiting host is written again and again")
	}
}

func TestOneAfterTheOtherIsUpdated(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	r.sign(t)
	r.reconcile(t, 1)
	r.register(t, 1, second)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || i.Status.Revision != second {
		t.Fatalf("status %+v", i.Status)
	}
	if len(r.woken) == 0 {
		t.Fatal("the second host was not triggered")
	}
	r.reconcile(t, 2)
	if i := r.get(t, 2); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("the second host is in %s: %s", i.Status.Phase, i.Status.Message())
	}
}

func TestAHostThatFailsBeforeItsNodeIsDisruptedHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if i.Status.Reason() != string(contract.ReasonUnreachable) || i.Status.Failures != 1 ||
		condition(i, v1alpha1.ConditionReady) != "True NodeReady" {
		t.Errorf("a serving node whose update fails shows %+v", i.Status)
	}
	r.reconcile(t, 2)
	if i = r.get(t, 2); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("the second host is in %s: %s", i.Status.Phase, i.Status.Message())
	}
	r.machine(1).Fail(hosttest.Dialling, nil)
	r.clock = r.clock.Add(time.Minute)
	dials := r.machine(1).Dials()
	r.reconcile(t, 1) // now the first host must wait, because the second host is being updated
	if i = r.get(t, 1); i.Status.Reason() != string(contract.ReasonBudgetExhausted) || r.machine(1).Dials() != dials {
		t.Errorf("two nodes are disrupted at the same time: %+v", i.Status)
	}
}

func TestAHostThatFailsAfterItsNodeIsDisruptedGoesOn(t *testing.T) {
	t.Parallel()
	r := updating(t)
	lost := contract.NewProblem(contract.ReasonConnectionLost, "in the middle")
	// The Node is adopted, and the new revision was requested from its daemon.
	r.machine(1).Fail(string(contract.VerbHandover), lost)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Failures != 1 || condition(i, v1alpha1.ConditionReady) != "False ConnectionLost" {
		t.Errorf("status %+v", i.Status)
	}
	r.reconcile(t, 2)
	if r.machine(2).Dials() != 1 {
		t.Error("a second node was disrupted while the first one is between two revisions")
	}
	r.machine(1).Fail(string(contract.VerbHandover), nil)
	r.clock = r.clock.Add(time.Minute)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("the host waits for itself: %+v", i.Status)
	}
}

func TestTheBudgetHoldsAcrossARestart(t *testing.T) {
	t.Parallel()
	r := updating(t)
	for n := 1; n <= 2; n++ { // both updates have begun, but the nodes are not disrupted yet
		i := r.get(t, n)
		i.Status.Phase = v1alpha1.PhaseDelivering
		if err := r.api.Status().Update(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	r.restart(t)
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	if one, two := r.get(t, 1), r.get(t, 2); one.Status.Phase != v1alpha1.PhaseConfirming ||
		two.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("the first host is in %s, the second in %s", one.Status.Phase, two.Status.Phase)
	}
}

func TestTheBudgetIsTheUsers(t *testing.T) {
	t.Parallel()
	r := updating(t)
	budget := intstr.FromString("100%")
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject},
		Spec: v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{MaxUnavailable: &budget}}}
	if err := r.api.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	if one, two := r.get(t, 1), r.get(t, 2); one.Status.Phase != v1alpha1.PhaseConfirming ||
		two.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("the first host is in %s, the second in %s", one.Status.Phase, two.Status.Phase)
	}
}

func TestARevisionThatNeverComesUpCanBeLeft(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.reconcile(t, 1)
	r.sign(t)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Fatalf("status %+v", i.Status)
	}
	const third = "1.2.0-cccccccccc"
	r.version = third
	r.reconcile(t, 1)
	r.reconcile(t, 1)
	node := &corev1.Node{}
	if err := r.api.Get(t.Context(), types.NamespacedName{Name: "win-a"}, node); err != nil ||
		node.Annotations[contract.DesiredRevisionAnnotation] != third {
		t.Errorf("the Node should have the desired revision %q, %v",
			node.Annotations[contract.DesiredRevisionAnnotation], err)
	}
}

func TestAnUpdateThatIsTakenBackLeavesNoTrace(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.reconcile(t, 1)
	r.machine(2).Fail(hosttest.Dialling, unreachable())
	r.reconcile(t, 2)
	r.version = first
	r.reconcile(t, 2)
	i := r.get(t, 2)
	if i.Status.Reason() != string(contract.ReasonNodeReady) || i.Status.Failures != 0 ||
		condition(i, v1alpha1.ConditionProgressing) != "False NodeReady" {
		t.Errorf("status %+v", i.Status)
	}
}

func TestAPlaceInTheBudgetIsOnShowBeforeAnythingIsDisrupted(t *testing.T) {
	t.Parallel()
	r := updating(t)
	seen := 0
	r.saving = func() { // the first two writes are the request and the slot, and must come before the dialling
		if seen++; seen <= 2 && r.machine(1).Dials() != 1 {
			t.Error("the host is disrupted before its status shows that")
		}
	}
	r.reconcile(t, 1)
	r.saving = nil
	claim := r.get(t, 1).Status.Slot
	if claim == nil || !claim.Since.Time.Equal(r.clock) {
		t.Fatalf("claim %+v", claim)
	}
	r.restart(t) // a new operator must know about the slot
	r.reconcile(t, 2)
	if i := r.get(t, 2); i.Status.HasSlot() || r.machine(2).Dials() != 1 {
		t.Errorf("a second host got a slot: %+v", i.Status)
	}
	r.reconcile(t, 1)
	r.sign(t)
	r.reconcile(t, 1)
	r.register(t, 1, second)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || i.Status.HasSlot() {
		t.Errorf("status %+v", i.Status)
	}
}

func TestAPlaceThatCouldNotBeWrittenDownIsNotTaken(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.broken["status"] = apierrors.NewServiceUnavailable("away")
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err == nil {
		t.Fatal("the slot could not be saved, but no error was returned")
	}
	if r.machine(1).Dials() != 1 {
		t.Error("the host was disrupted all the same")
	}
	delete(r.broken, "status")
	r.reconcile(t, 2)
	if i := r.get(t, 2); !i.Status.HasSlot() {
		t.Errorf("the slot is lost: %+v", i.Status)
	}
	r.reconcile(t, 1)
	if r.machine(1).Dials() != 1 || r.get(t, 1).Status.HasSlot() {
		t.Error("two hosts have a slot")
	}
}

// A host that lost its slot during a join at another revision requests a slot a second time. If the rollout is halted
// by then, the host must not be joined at that revision.
func TestAHostIsNotJoinedAgainAtARevisionThatIsHalted(t *testing.T) {
	t.Parallel()
	r := updating(t)
	failed := r.get(t, 1)
	failed.Status.FailedRevision = second
	if err := r.api.Status().Update(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	i := r.get(t, 2)
	i.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: second,
		Step: v1alpha1.StepWaiting, Since: metav1.NewTime(r.clock)}
	verdict, err := r.mayJoin(t, i)
	if err != nil || verdict.Allowed || verdict.Reason != contract.ReasonRolloutHalted {
		t.Errorf("%+v, %v", verdict, err)
	}
}

// mayJoin returns the rollout controller's verdict on whether the host of i may join.
func (r *rig) mayJoin(t *testing.T, i *v1alpha1.WindowsInstance) (policy.Verdict, error) {
	t.Helper()
	if err := r.api.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	c := newReconciliation(r.Reconciler, i, nil, r.memory(i))
	if _, err := (joining{c}).mayJoin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.record.save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.rollout.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	return joining{c}.mayJoin(t.Context())
}
