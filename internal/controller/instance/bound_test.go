package instance

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// A clock that was wrong for a while must not hold a host for years.
func TestTimesThatAWrongClockWroteAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1)
	far := metav1.NewTime(r.clock.Add(10 * 365 * 24 * time.Hour))
	i := r.get(t, 1)
	i.Status.NextAttemptTime = &far
	i.Status.Phase = v1alpha1.PhaseConnecting
	if err := r.api.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	r.restart(t)
	dials := r.machine(1).Dials()
	for range 3 {
		if result := r.reconcile(t, 1); result.RequeueAfter > time.Hour {
			t.Fatalf("it is looked at again in %s", result.RequeueAfter)
		}
		r.clock = r.clock.Add(6 * time.Minute)
	}
	if r.machine(1).Dials() == dials {
		t.Error("the host is not tried again")
	}
}

// Whoever waits for something that may never come takes no place from others.
func TestARemovalThatWaitsForTheKeyTakesNoPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.noKey = contract.NewProblem(contract.ReasonPrivateKeyMissing, "there is none")
	r.remove(t, 1)
	r.reconcile(t, 1)
	if got := r.get(t, 1).Status; got.Disruption != nil || got.Reason != string(contract.ReasonPrivateKeyMissing) {
		t.Errorf("place %+v, reason %s", got.Disruption, got.Reason)
	}
	r.noKey = nil
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Errorf("with the key it stays: %+v", r.get(t, 1).Status)
	}
}

// A daemon that is dead does not reboot its host, and its node goes on serving.
func TestAnApprovedRebootThatTheDaemonDoesNotDoGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.says(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.is(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	r.passes(t, 1, 21*time.Minute)
	r.is(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDaemonSilent)
	node := r.node(t, 1)
	if r.get(t, 1).Status.Disruption != nil || node.Spec.Unschedulable ||
		node.Annotations[contract.RebootApprovedAnnotation] != "" {
		t.Errorf("place %+v, unschedulable %v, annotations %v", r.get(t, 1).Status.Disruption,
			node.Spec.Unschedulable, node.Annotations)
	}
}
