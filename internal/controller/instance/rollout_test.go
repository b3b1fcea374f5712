package instance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host/hosttest"
)

// two hosts that have joined, and a new version that needs SSH.
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
		t.Errorf("asks again after %s", result.RequeueAfter)
	}
	one, two := r.get(t, 1), r.get(t, 2)
	if one.Status.Phase != v1alpha1.PhaseConfirming || r.machine(2).Dials() != 1 {
		t.Fatalf("the first one is in %s; %d connections to the second one", one.Status.Phase, r.machine(2).Dials())
	}
	if two.Status.Phase != v1alpha1.PhaseReady || condition(two, v1alpha1.ConditionReady) != "True NodeReady" ||
		condition(two, v1alpha1.ConditionProgressing) != "True VersionPending" || two.Status.Reason != string(contract.ReasonVersionPending) {
		t.Errorf("the one that waits is shown as %+v", two.Status)
	}
	if condition(one, v1alpha1.ConditionReady) != "False VersionPending" {
		t.Errorf("the one that is updated is shown as %+v", one.Status)
	}
	writes := r.statusWrites
	r.reconcile(t, 2)
	if r.statusWrites != writes {
		t.Error("waiting writes a status again and again")
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
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || i.Status.Version != second {
		t.Fatalf("status %+v", i.Status)
	}
	if len(r.woken) == 0 {
		t.Fatal("the second one was not woken")
	}
	r.reconcile(t, 2)
	if i := r.get(t, 2); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("the second one is in %s: %s", i.Status.Phase, i.Status.Message)
	}
}

func TestAHostThatFailsBeforeItsNodeIsDisturbedHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if i.Status.Reason != string(contract.ReasonUnreachable) || i.Status.Failures != 1 || condition(i, v1alpha1.ConditionReady) != "True NodeReady" {
		t.Errorf("a node that serves while its update fails is shown as %+v", i.Status)
	}
	r.reconcile(t, 2)
	if i = r.get(t, 2); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("the second one is in %s: %s", i.Status.Phase, i.Status.Message)
	}
	r.machine(1).Fail(hosttest.Dialling, nil)
	r.clock = r.clock.Add(time.Minute)
	dials := r.machine(1).Dials()
	r.reconcile(t, 1) // its next attempt must queue, because the second one is under way
	if i = r.get(t, 1); i.Status.Reason != string(contract.ReasonVersionPending) || r.machine(1).Dials() != dials {
		t.Errorf("two nodes are taken down at once: %+v", i.Status)
	}
}

func TestAHostThatFailsAfterItsNodeIsDisturbedGoesOn(t *testing.T) {
	t.Parallel()
	r := updating(t)
	lost := contract.NewProblem(contract.ReasonConnectionLost, "in the middle")
	r.machine(1).Fail(string(contract.VerbHandover), lost) // adopted: told to have the new version
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Failures != 1 || condition(i, v1alpha1.ConditionReady) != "False ConnectionLost" {
		t.Errorf("status %+v", i.Status)
	}
	r.reconcile(t, 2)
	if r.machine(2).Dials() != 1 {
		t.Error("a second node was taken down while the first one is between two versions")
	}
	r.machine(1).Fail(string(contract.VerbHandover), nil)
	r.clock = r.clock.Add(time.Minute)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("it waits for itself: %+v", i.Status)
	}
}

func TestTheBudgetHoldsAcrossARestart(t *testing.T) {
	t.Parallel()
	r := updating(t)
	for n := 1; n <= 2; n++ { // as if both had been on their way, with their nodes undisturbed
		i := r.get(t, n)
		i.Status.Phase = v1alpha1.PhaseDelivering
		if err := r.api.Status().Update(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	r.restart(t)
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	if one, two := r.get(t, 1), r.get(t, 2); one.Status.Phase != v1alpha1.PhaseConfirming || two.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("one is in %s, two in %s", one.Status.Phase, two.Status.Phase)
	}
}

func TestTheBudgetIsTheUsers(t *testing.T) {
	t.Parallel()
	r := updating(t)
	budget := intstr.FromString("100%")
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}, Spec: v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{MaxUnavailable: &budget}}}
	if err := r.api.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	if one, two := r.get(t, 1), r.get(t, 2); one.Status.Phase != v1alpha1.PhaseConfirming || two.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("one is in %s, two in %s", one.Status.Phase, two.Status.Phase)
	}
}

func TestAVersionThatNeverComesUpCanBeLeft(t *testing.T) {
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
	if err := r.api.Get(t.Context(), types.NamespacedName{Name: "win-a"}, node); err != nil || node.Annotations[contract.DesiredVersionAnnotation] != third {
		t.Errorf("the node should have %q, %v", node.Annotations[contract.DesiredVersionAnnotation], err)
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
	if i.Status.Reason != string(contract.ReasonNodeReady) || i.Status.Failures != 0 || condition(i, v1alpha1.ConditionProgressing) != "False NodeReady" {
		t.Errorf("status %+v", i.Status)
	}
}
