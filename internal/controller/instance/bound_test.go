package instance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// A restore of etcd sets every object back to an earlier version, under the same UID.
func TestAStatusIsWrittenAgainAfterARestoreOfEtcd(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	was := r.get(t, 1)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Finalizers = nil })
	if err := r.api.Delete(t.Context(), r.get(t, 1)); err != nil {
		t.Fatal(err)
	}
	restored := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: was.Namespace, Name: was.Name,
		UID: was.UID, Generation: was.Generation, Finalizers: was.Finalizers}, Spec: was.Spec}
	if err := r.api.Create(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	restored.Status = was.Status
	if err := r.api.Status().Update(t.Context(), restored); err != nil {
		t.Fatal(err)
	}
	if now := r.get(t, 1).ResourceVersion; newer(now, was.ResourceVersion) == now {
		t.Fatalf("version %s after %s is no restore", r.get(t, 1).ResourceVersion, was.ResourceVersion)
	}
	r.changes(t, 1, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	for range 6 {
		r.clock = r.clock.Add(30 * time.Second)
		r.reconcile(t, 1)
	}
	if got := r.get(t, 1).Status; got.Reason != string(contract.ReasonNodeNotReady) {
		t.Errorf("the status says %s: %s", got.Reason, got.Message)
	}
}

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
