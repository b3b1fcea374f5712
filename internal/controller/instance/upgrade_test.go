package instance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubetesting "k8s.io/client-go/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

const third = "1.2.0-cccccccccc"

// staged returns hosts that have joined and whose daemons can download payload. A new revision is desired.
func staged(t *testing.T, hosts ...int) *rig {
	t.Helper()
	r := newRig(t)
	for _, n := range hosts {
		for _, o := range listed(n) {
			if err := r.api.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		r.join(t, n)
		r.annotate(t, n, contract.BootIDAnnotation, "boot-1")
		r.reconcile(t, n)
	}
	r.version = second
	return r
}

// node reads a host's Node.
func (r *rig) node(t *testing.T, n int) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := r.api.Get(t.Context(), types.NamespacedName{Name: r.machine(n).Facts().Hostname}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// changes writes a Node as a different client would.
func (r *rig) changes(t *testing.T, n int, edit func(*corev1.Node)) {
	t.Helper()
	node := r.node(t, n)
	edit(node)
	status := node.Status.DeepCopy()
	if err := r.api.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status = *status
	if err := r.api.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if ready, _ := journey.NodeReady(node); !ready {
		r.rollout.Observed.NotReady(node) // as the event about the Node would do
	}
}

// annotate writes an annotation on a Node, as the daemon does when it reports.
func (r *rig) annotate(t *testing.T, n int, annotation, value string) {
	t.Helper()
	r.changes(t, n, func(node *corev1.Node) { node.Annotations[annotation] = value })
}

func (r *rig) isReady(t *testing.T, n int, ready bool) {
	t.Helper()
	r.changes(t, n, func(node *corev1.Node) {
		node.Status.Conditions[0].Status = corev1.ConditionTrue
		if !ready {
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(r.clock)
	})
}

// advance lets time pass, and reconciles the instance.
func (r *rig) advance(t *testing.T, n int, d time.Duration) {
	t.Helper()
	r.clock = r.clock.Add(d)
	r.reconcile(t, n)
}

// pod creates a pod on a host's node.
func (r *rig) pod(t *testing.T, n int, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:   corev1.PodSpec{NodeName: r.machine(n).Facts().Hostname},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	if _, err := r.pods.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// evicts handles evictions. While blocked is true, it refuses them. Otherwise, it deletes the pods.
func (r *rig) evicts(blocked *bool) {
	r.pods.PrependReactor("create", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(kubetesting.CreateAction)
		if !ok || a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		if *blocked {
			return true, nil, apierrors.NewTooManyRequests("a disruption budget", 1)
		}
		eviction, ok := create.GetObject().(*policyv1.Eviction)
		if !ok {
			return false, nil, nil
		}
		return true, nil, r.pods.Tracker().Delete(schema.GroupVersionResource{Version: "v1", Resource: "pods"},
			"default", eviction.Name)
	})
}

// refusesEvictions makes evictions fail with an error that doesn't come from a disruption budget.
func (r *rig) refusesEvictions(err error) {
	r.pods.PrependReactor("create", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "eviction", nil, apierrors.NewInternalError(err)
	})
}

// expect checks the phase, the step ("" for none) and the reason of an instance.
func (r *rig) expect(t *testing.T, n int, phase v1alpha1.Phase, step v1alpha1.Step,
	reason contract.Reason) *v1alpha1.WindowsInstance {
	t.Helper()
	i := r.get(t, n)
	at := v1alpha1.Step("")
	switch {
	case i.Status.Upgrade() != nil && i.Status.Phase != v1alpha1.PhaseRebooting:
		at = i.Status.Upgrade().Step
	case i.Status.Reboot() != nil:
		at = i.Status.Reboot().Step
	}
	if i.Status.Phase != phase || at != step || i.Status.Reason() != string(reason) {
		t.Fatalf("host %d is in %s, %s, %s (%s), want %s, %s, %s", n, i.Status.Phase, at, i.Status.Reason(),
			i.Status.Message(), phase, step, reason)
	}
	return i
}

func TestANodeGoesToAnotherRevisionStepByStepWithoutSSH(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	blocked := false
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	dials := r.machine(1).Dials()

	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepStaging, contract.ReasonStaging)
	if n := r.node(t, 1); n.Annotations[contract.StageAnnotation] != second ||
		n.Annotations[contract.DesiredRevisionAnnotation] != first || n.Spec.Unschedulable {
		t.Fatalf("before the drain, the node is %v", n.Annotations)
	}
	r.annotate(t, 1, contract.StageStatusAnnotation, "DiskFull: no room")
	r.advance(t, 1, time.Hour)
	if i := r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepStaging,
		contract.ReasonStaging); !strings.Contains(i.Status.Message(), "no room") {
		t.Errorf("the message is %s", i.Status.Message())
	}

	r.annotate(t, 1, contract.StagedAnnotation, second)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	if n := r.node(t, 1); !n.Spec.Unschedulable || n.Labels[contract.UpgradingLabel] != "true" ||
		n.Annotations[contract.CordonedAnnotation] != "true" ||
		n.Annotations[contract.DesiredRevisionAnnotation] != first {
		t.Fatalf("during the drain, the node is %v %v", n.Annotations, n.Labels)
	}
	r.restart(t)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	if n := r.node(t, 1); n.Annotations[contract.DesiredRevisionAnnotation] != second {
		t.Fatalf("the daemon should be told revision %s", n.Annotations[contract.DesiredRevisionAnnotation])
	}

	r.isReady(t, 1, false)
	r.advance(t, 1, time.Minute)
	r.annotate(t, 1, contract.RevisionAnnotation, second)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonNodeNotReady)
	r.isReady(t, 1, true)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonSettling)
	r.advance(t, 1, 9*time.Second)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonSettling)
	r.restart(t) // a new operator must observe the node for the whole settling time
	r.advance(t, 1, 2*time.Second)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonSettling)
	r.advance(t, 1, 11*time.Second)
	i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
	n := r.node(t, 1)
	if i.Status.Revision != second || i.Status.DesiredRevision != second || i.Status.HasSlot() ||
		condition(i, v1alpha1.ConditionReady) != "True NodeReady" {
		t.Errorf("status %+v", i.Status)
	}
	if n.Spec.Unschedulable || n.Labels[contract.UpgradingLabel] != "" ||
		n.Annotations[contract.CordonedAnnotation] != "" {
		t.Errorf("the node is %v %v, unschedulable %v", n.Annotations, n.Labels, n.Spec.Unschedulable)
	}
	if r.machine(1).Dials() != dials {
		t.Errorf("%d connections over SSH", r.machine(1).Dials()-dials)
	}
	writes := r.statusWrites
	r.reconcile(t, 1)
	if r.statusWrites != writes {
		t.Error("the status of a healthy node is written again")
	}
}

// switched reconciles a host until the operator has requested the new revision from its daemon.
func (r *rig) switched(t *testing.T, n int) {
	t.Helper()
	r.reconcile(t, n)
	r.annotate(t, n, contract.StagedAnnotation, r.version)
	r.reconcile(t, n)
	r.expect(t, n, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// arrives simulates a daemon that reports a revision. Then it lets the settling time pass.
func (r *rig) arrives(t *testing.T, n int, version string) {
	t.Helper()
	r.annotate(t, n, contract.RevisionAnnotation, version)
	r.reconcile(t, n)
	r.advance(t, n, time.Minute)
}

func TestOnlyOneNodeAtATimeGoesAndTheNextFollowsAtOnce(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.switched(t, 1)
	r.reconcile(t, 2)
	r.annotate(t, 2, contract.StagedAnnotation, second)
	r.reconcile(t, 2)
	i := r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonBudgetExhausted)
	if condition(i, v1alpha1.ConditionReady) != "True NodeReady" || r.node(t, 2).Spec.Unschedulable {
		t.Errorf("the waiting instance shows %+v", i.Status)
	}
	for len(r.woken) > 0 {
		<-r.woken
	}
	r.arrives(t, 1, second)
	if len(r.woken) != 1 {
		t.Fatalf("%d hosts were triggered", len(r.woken))
	}
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// Hundreds of nodes may wait for the budget, so their message should change only if a person must act.
func TestANodeThatWaitsForTheBudgetNamesWhoIsInItsWay(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2, 3)
	waits := func() *v1alpha1.WindowsInstance {
		t.Helper()
		r.reconcile(t, 1)
		return r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonBudgetExhausted)
	}
	cordon := func(is bool) {
		t.Helper()
		r.changes(t, 2, func(n *corev1.Node) { n.Spec.Unschedulable = is })
	}
	hasPlace := func(n int, slot *v1alpha1.Slot) {
		t.Helper()
		i := r.get(t, n)
		i.Status.Slot = slot
		if err := r.api.Status().Update(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	cordon(true)
	r.stagedAll(t, 1)
	if i := waits(); !strings.Contains(i.Status.Message(), "maxUnavailable is 1 (win-b: it is cordoned)") {
		t.Errorf("the message is %s", i.Status.Message())
	}
	cordon(false)
	hasPlace(3, &v1alpha1.Slot{Since: new(metav1.NewTime(r.clock))})
	if i := waits(); strings.Contains(i.Status.Message(), "win-") {
		t.Errorf("other nodes have the slots, and the message is %s", i.Status.Message())
	}
	writes := r.statusWrites
	hasPlace(3, nil)
	hasPlace(2, &v1alpha1.Slot{Since: new(metav1.NewTime(r.clock))})
	if waits(); r.statusWrites != writes {
		t.Error("each assignment of a slot changes the status of all waiting nodes")
	}
	hasPlace(2, nil)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)) })
	if i := waits(); !strings.Contains(i.Status.Message(), "maxUnavailable is 0 (W") {
		t.Errorf("the message is %s", i.Status.Message())
	}
}

// A token that can't be renewed, and a reboot that Windows refuses, are problems that existed before the update. They
// must not count as a failure of the revision.
func TestWhatIsWrongBesideARevisionDoesNotFailIt(t *testing.T) {
	t.Parallel()
	for _, reason := range []contract.Reason{contract.ReasonTokenExpiring, contract.ReasonRebootFailed} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1)
			r.switched(t, 1)
			r.annotate(t, 1, contract.ApplyStatusAnnotation, string(reason)+": it is refused")
			r.arrives(t, 1, second)
			r.advance(t, 1, time.Minute)
			i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
			if i.Status.HeldRevision != second || i.Status.FailedRevision != "" {
				t.Errorf("status %+v", i.Status)
			}
		})
	}
}

func TestARevisionThatDoesNotHoldIsTakenBackAndHaltsTheRollout(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(t *testing.T, r *rig){
		"the daemon went back by itself": func(t *testing.T, r *rig) {
			t.Helper()
			r.annotate(t, 1, contract.ApplyStatusAnnotation, "ServiceFailed: revision "+second+": kubelet ended right "+
				"after its start; the host is held at "+first)
			r.reconcile(t, 1)
		},
		"the daemon never reports that the revision holds": func(t *testing.T, r *rig) {
			t.Helper()
			r.advance(t, 1, 11*time.Minute)
		},
		"the node does not become Ready": func(t *testing.T, r *rig) {
			t.Helper()
			r.isReady(t, 1, false)
			r.annotate(t, 1, contract.RevisionAnnotation, second)
			r.advance(t, 1, time.Minute)
			r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonNodeNotReady)
			r.advance(t, 1, 10*time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1, 2)
			r.switched(t, 1)
			fails(t, r)
			i := r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepRollingBack, contract.ReasonUpdateFailed)
			if i.Status.FailedRevision != second ||
				!i.Status.HasSlot() {
				t.Fatalf("status %+v", i.Status)
			}
			if n := r.node(t, 1); n.Annotations[contract.DesiredRevisionAnnotation] != first || !n.Spec.Unschedulable {
				t.Fatalf("during the rollback, the node is %v", n.Annotations)
			}
			r.restart(t)
			r.changes(t, 1, func(n *corev1.Node) {
				n.Annotations[contract.RevisionAnnotation] = first
				delete(n.Annotations, contract.ApplyStatusAnnotation)
			})
			r.isReady(t, 1, true)
			r.reconcile(t, 1)
			i = r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonUpdateFailed)
			if n := r.node(t, 1); i.Status.HasSlot() || n.Spec.Unschedulable ||
				n.Labels[contract.UpgradingLabel] != "" || condition(i, v1alpha1.ConditionReady) != "True NodeReady" {
				t.Fatalf("back in service: %+v, %v", i.Status, n.Spec.Unschedulable)
			}
			r.reconcile(t, 2)
			r.annotate(t, 2, contract.StagedAnnotation, second)
			r.reconcile(t, 2)
			r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRolloutHalted)
			r.advance(t, 1, time.Hour)
			r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonUpdateFailed)

			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
				c.Annotations = map[string]string{contract.ResumeRolloutAnnotation: second}
			})
			r.reconcile(t, 2)
			r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
			r.arrives(t, 2, second)
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Annotations = nil })
			r.version = third // the failure must not count for a newer revision
			r.switched(t, 1)
			r.arrives(t, 1, third)
			if i = r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady); i.Status.FailedRevision != "" {
				t.Errorf("status %+v", i.Status)
			}
		})
	}
}

// The daemon's report that the revision failed must not count as a response to the request to roll back.
func TestADaemonThatDiesOnItsWayBackIsRescuedOverSSH(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.switched(t, 1)
	r.annotate(t, 1, contract.ApplyStatusAnnotation, "ServiceFailed: revision "+second+": kubelet ended right after its "+
		"start; the host is held at "+first)
	r.reconcile(t, 1)
	i := r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepRollingBack, contract.ReasonUpdateFailed)
	if failed := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionUpdateFailed); failed == nil ||
		!strings.Contains(failed.Message, "kubelet ended") ||
		!strings.Contains(i.Status.Message(), "kubelet ended") {
		t.Errorf("the status lacks the cause: %+v", i.Status)
	}
	r.reconcile(t, 1) // because the Node has changed
	r.looksInTime(t, 1, r.machine(1).Dials())
}

// A node that does not become healthy at its previous revision is out of service, with or without a slot. It must keep
// its slot, and its status must say what to do.
func TestANodeThatDoesNotGetBackSaysSoOnceAndIsUnavailableWithOrWithoutItsPlace(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.FailureThreshold = 5 })
	r.switched(t, 1)
	r.annotate(t, 1, contract.ApplyStatusAnnotation, "ServiceFailed: revision "+second+": kubelet ended right after "+
		"its start; the host is held at "+first)
	r.reconcile(t, 1)
	r.annotate(t, 1, contract.ApplyStatusAnnotation, "FileLocked: revision "+first+": an antivirus holds kubelet.exe")
	r.advance(t, 1, 9*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepRollingBack, contract.ReasonUpdateFailed)
	before := len(r.events)
	r.advance(t, 1, 2*time.Minute)
	r.restart(t)
	r.reconcile(t, 1)
	r.advance(t, 1, time.Hour)
	i := r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepRollingBack, contract.ReasonRollbackTimedOut)
	if !i.Status.HasSlot() || fixOf(i) == "" || codeOf(i) != "W714" ||
		!strings.Contains(i.Status.Message(), "antivirus") || !strings.Contains(i.Status.Message(), "since 2026-") {
		t.Errorf("status %+v", i.Status)
	}
	about := 0
	for _, e := range r.events[before:] {
		if _, ok := e.regarding.(*v1alpha1.WindowsInstance); ok && e.reason == journey.EventUpdateFailed {
			about++
		}
	}
	if about != 1 {
		t.Errorf("%d events report this: %+v", about, r.events[before:])
	}

	waits := func(slot bool) {
		r.reconcile(t, 2)
		r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonBudgetExhausted)
		if held := r.get(t, 1).Status.HasSlot(); held != slot {
			t.Errorf("the node that failed to roll back has a slot: %v", held)
		}
	}
	r.reconcile(t, 2)
	r.annotate(t, 2, contract.StagedAnnotation, second)
	waits(true)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.reconcile(t, 1)
	waits(false)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
	r.reconcile(t, 1)
	waits(true)

	r.changes(t, 1, func(n *corev1.Node) {
		n.Annotations[contract.RevisionAnnotation] = first
		delete(n.Annotations, contract.ApplyStatusAnnotation)
	})
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonUpdateFailed)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// settings changes the WindowsMachineConfig.
func (r *rig) settings(t *testing.T, edit func(*v1alpha1.WindowsMachineConfig)) {
	t.Helper()
	config := &v1alpha1.WindowsMachineConfig{}
	err := r.api.Get(t.Context(), types.NamespacedName{Name: contract.MachineConfigObject}, config)
	if apierrors.IsNotFound(err) {
		config.Name = contract.MachineConfigObject
		edit(config)
		if err = r.api.Create(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		return
	}
	edit(config)
	if err = r.api.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
}

func TestADrainThatIsBlockedDelaysThatNodeOnly(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	for _, n := range []int{1, 2} {
		r.reconcile(t, n)
		r.annotate(t, n, contract.StagedAnnotation, second)
		r.reconcile(t, n)
	}
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepDraining, contract.ReasonDraining)
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonBudgetExhausted)
	r.advance(t, 1, 11*time.Minute)
	i := r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDrainBlocked)
	if n := r.node(t, 1); n.Spec.Unschedulable || i.Status.HasSlot() || i.Status.Upgrade().NextTime == nil ||
		!strings.Contains(i.Status.Message(), "default/web") {
		t.Fatalf("the host keeps its slot: %+v", i.Status)
	}
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.arrives(t, 2, second)
	blocked = false
	r.advance(t, 1, 2*time.Minute)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// If hosts with the most failures were first, two hosts whose drains are blocked would take turns forever, and no other
// node would get a slot.
func TestTwoDrainsThatAreBlockedLeaveThePlaceToOthersInBetween(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2, 3)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.pod(t, 2, "db")
	r.remove(t, 1)
	r.remove(t, 2)
	for range 180 {
		r.clock = r.clock.Add(20 * time.Second)
		for _, n := range []int{1, 2, 3} {
			r.reconcile(t, n)
			r.annotate(t, 3, contract.StagedAnnotation, second)
		}
	}
	for _, n := range []int{1, 2} {
		if i := r.get(t, n); i.Status.Failures == 0 {
			t.Errorf("host %d is %+v", n, i.Status)
		}
	}
	if i := r.get(t, 3); !i.Status.IsRequested() {
		t.Errorf("after an hour, the third host is %+v", i.Status)
	}
}

func TestWhatOthersDoWithTheCordonIsRespected(t *testing.T) {
	t.Parallel()
	t.Run("an earlier cordon stays", func(t *testing.T) {
		t.Parallel()
		r := staged(t, 1)
		r.changes(t, 1, func(n *corev1.Node) { n.Spec.Unschedulable = true })
		r.switched(t, 1)
		r.arrives(t, 1, second)
		r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
		if !r.node(t, 1).Spec.Unschedulable {
			t.Error("an administrator's cordon was lifted")
		}
	})
	t.Run("a node that is uncordoned during its drain stays uncordoned", func(t *testing.T) {
		t.Parallel()
		r := staged(t, 1)
		blocked := true
		r.evicts(&blocked)
		r.pod(t, 1, "web")
		r.reconcile(t, 1)
		r.annotate(t, 1, contract.StagedAnnotation, second)
		r.reconcile(t, 1)
		r.changes(t, 1, func(n *corev1.Node) { n.Spec.Unschedulable = false })
		r.reconcile(t, 1)
		r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonUncordoned)
		if n := r.node(t, 1); n.Spec.Unschedulable || n.Annotations[contract.CordonedAnnotation] != "" {
			t.Error("the node is cordoned against the administrator's will")
		}
	})
}

func TestANewerRevisionInMidwayIsGoneOnTo(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.switched(t, 1)
	r.version = third
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if i.Status.Upgrade() == nil || i.Status.Upgrade().Revision != third || i.Status.HeldRevision != first ||
		!i.Status.HasSlot() || !r.node(t, 1).Spec.Unschedulable {
		t.Fatalf("status %+v", i.Status.Upgrade())
	}
	r.annotate(t, 1, contract.StagedAnnotation, third)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.arrives(t, 1, third)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

func TestADowngradeIsAnUpdateLikeAnyOther(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.switched(t, 1)
	r.arrives(t, 1, second)
	r.version = first
	r.switched(t, 1)
	r.arrives(t, 1, first)
	if i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady); i.Status.Revision != first {
		t.Errorf("status %+v", i.Status)
	}
}

func TestARevisionThatIsTakenBackWhileItIsStagedLeavesNoTrace(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.reconcile(t, 1)
	r.version = first
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

func TestANodeThatIsDeletedWhileItIsDrainedJoinsAgain(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.reconcile(t, 1)
	r.annotate(t, 1, contract.StagedAnnotation, second)
	r.reconcile(t, 1)
	if err := r.api.Delete(t.Context(), r.node(t, 1)); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t, 1)
	r.register(t, 1, "")
	r.reconcile(t, 1)
	r.sign(t)
	r.reconcile(t, 1)
	r.register(t, 1, second)
	r.reconcile(t, 1)
	if i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady); i.Status.HasSlot() ||
		i.Status.Upgrade() != nil {
		t.Errorf("status %+v", i.Status)
	}
}

func TestAPauseInMidwayGivesThePlaceBackAndGoesOnAfterwards(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.switched(t, 1)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	r.annotate(t, 2, contract.StagedAnnotation, second)
	r.reconcile(t, 2)
	// The second node must still wait.
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonBudgetExhausted)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
	r.reconcile(t, 1)
	if i := r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching,
		contract.ReasonRevisionPending); !i.Status.HasSlot() {
		t.Error("the host continues without a slot")
	}
}

// A user pauses an instance in the middle of an update and repairs its host. The time of the pause must not count as
// verification time, because otherwise the revision would fail.
func TestTimeUnderAPauseIsNoTimeOfTheVerification(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, r *rig){
		"while it is switched": func(*testing.T, *rig) {},
		"while it is verified": func(t *testing.T, r *rig) {
			r.annotate(t, 1, contract.RevisionAnnotation, second)
			r.reconcile(t, 1)
			r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonSettling)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1)
			r.switched(t, 1)
			before(t, r)
			r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
			r.reconcile(t, 1)
			r.isReady(t, 1, false)
			r.advance(t, 1, time.Hour)
			r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
			r.reconcile(t, 1)
			r.reconcile(t, 1)
			i := r.get(t, 1)
			if i.Status.FailedRevision != "" || i.Status.Upgrade() == nil || !i.Status.HasSlot() ||
				i.Status.Upgrade().Step == v1alpha1.StepRollingBack {
				t.Fatalf("after the pause, the status is %+v", i.Status)
			}
			r.advance(t, 1, 11*time.Minute)
			if i = r.get(t, 1); i.Status.Upgrade() == nil || i.Status.Upgrade().Step == v1alpha1.StepSwitching {
				t.Errorf("after verifyTimeout, the status is %+v", i.Status)
			}
		})
	}
}

func TestADaemonThatGetsNothingIsHelpedOverSSH(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]string{
		"because it does not respond":                 "",
		"because the payload server can't be reached": "PayloadIncomplete: 5 attempts in a row brought nothing",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1)
			r.reconcile(t, 1)
			r.annotate(t, 1, contract.StageStatusAnnotation, says)
			dials := r.machine(1).Dials()
			r.looksInTime(t, 1, dials)
		})
	}
}

func TestADaemonThatIsSlowIsNotHelpedOverSSH(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.reconcile(t, 1)
	dials := r.machine(1).Dials()
	r.annotate(t, 1, contract.StageStatusAnnotation, "Staging: 3 of 14 programs are still to come")
	r.advance(t, 1, time.Hour)
	if r.machine(1).Dials() != dials {
		t.Error("the daemon is still fetching, but its host was joined again")
	}
}

// If a transfer gets no data, the daemon still reports progress until it gives up.
func TestADaemonThatSaysInBetweenHowFarItIsAndGetsNothingIsHelpedOverSSH(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.reconcile(t, 1)
	dials := r.machine(1).Dials()
	for range 9 {
		r.annotate(t, 1, contract.StageStatusAnnotation, "Staging: 14 of 14 programs are still to come")
		r.advance(t, 1, 10*time.Second)
		r.annotate(t, 1, contract.StageStatusAnnotation, "PayloadIncomplete: 5 attempts in a row brought nothing")
		r.advance(t, 1, time.Minute)
	}
	if r.machine(1).Dials() == dials {
		t.Error("the operator did not connect to the host")
	}
}

// A daemon makes five attempts to download a file. Each may take a minute, so the daemon reports progress most of the
// time.
func TestADaemonThatGetsNothingSlowlyIsHelpedOverSSH(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		left     []int // the number of missing programs after each download
		isJoined bool
	}{
		"none of its programs":         {[]int{14, 14, 14}, true},
		"none of the missing programs": {[]int{3, 3, 3}, true},
		"one program with each fetch":  {[]int{14, 13, 12}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1)
			r.reconcile(t, 1)
			dials := r.machine(1).Dials()
			for _, left := range test.left {
				r.advance(t, 1, time.Minute)
				r.annotate(t, 1, contract.StageStatusAnnotation,
					fmt.Sprintf("Staging: %d of 14 programs are still to come", left))
				for range 4 {
					r.advance(t, 1, time.Minute)
				}
				r.annotate(t, 1, contract.StageStatusAnnotation, "PayloadIncomplete: 5 attempts in a row brought nothing")
				r.advance(t, 1, 15*time.Second)
				r.advance(t, 1, 15*time.Second)
			}
			if isJoined := r.machine(1).Dials() != dials; isJoined != test.isJoined {
				t.Errorf("the host is joined again: %v", isJoined)
			}
		})
	}
}

// The payload server is away for a moment, long after the daemon began to download. The host must not be joined again
// because of this.
func TestADaemonThatGetsNothingForAMomentGoesOnWithoutSSH(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.reconcile(t, 1)
	dials := r.machine(1).Dials()
	for n := range 3 {
		r.annotate(t, 1, contract.StageStatusAnnotation, fmt.Sprintf("Staging: %d of 14 programs are still to come", 3-n))
		r.advance(t, 1, 6*time.Minute)
		r.annotate(t, 1, contract.StageStatusAnnotation, "PayloadIncomplete: 5 attempts in a row brought nothing")
		r.advance(t, 1, time.Minute)
		r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepStaging, contract.ReasonStaging)
	}
	r.switched(t, 1)
	if r.machine(1).Dials() != dials {
		t.Error("the host was joined again")
	}
}

// While a host waits for a slot, the payload server may become reachable again.
func TestADaemonThatGetsItsPayloadWhileItWaitsForSSHIsUpgradedByItself(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	zero := intstr.FromInt32(0)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = &zero })
	r.reconcile(t, 1)
	dials := r.machine(1).Dials()
	r.advance(t, 1, 6*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonBudgetExhausted)
	r.annotate(t, 1, contract.StagedAnnotation, second)
	r.reconcile(t, 1)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = nil })
	r.switched(t, 1)
	if r.machine(1).Dials() != dials {
		t.Error("the host was joined again")
	}
}

// The operator must write a step to the status before it begins the step. Otherwise, the next operator would not know
// about the step.
func TestAStepThatCanNotBeNotedIsNotTaken(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.reconcile(t, 1)
	r.annotate(t, 1, contract.StagedAnnotation, second)
	writes := 0
	r.saving = func() {
		if writes++; writes == 2 { // the first write records the slot
			r.broken["status"] = apierrors.NewServiceUnavailable("away")
		}
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err == nil {
		t.Fatal("the write of the status failed, but no error was returned")
	}
	if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != first ||
		r.get(t, 1).Status.DesiredRevision != first {
		t.Errorf("the daemon was told revision %s, but the status does not show it", told)
	}
	r.saving, r.broken["status"] = nil, nil
	r.reconcile(t, 1)
	if told := r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]; told != second ||
		r.get(t, 1).Status.DesiredRevision != second {
		t.Errorf("the update did not continue: %s", told)
	}
}

// If services are only restarted, no pods are evicted, and the status of the node is written only twice.
func TestA24_ARestartInPlaceTakesAPlaceAndDrainsNothing(t *testing.T) {
	t.Parallel()
	r := inPlace(t, 1, 2)
	r.pod(t, 1, "stays")
	r.statusWrites = 0
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	node, one := r.node(t, 1), r.get(t, 1)
	if node.Annotations[contract.DesiredRevisionAnnotation] != proxied || node.Spec.Unschedulable ||
		!one.Status.HasSlot() {
		t.Errorf("annotations %v, cordoned %v, status %+v", node.Annotations, node.Spec.Unschedulable, one.Status)
	}
	if told := r.node(t, 2).Annotations[contract.DesiredRevisionAnnotation]; told != first {
		t.Errorf("a second daemon was told revision %s", told)
	}
	writes := r.statusWrites
	r.isReady(t, 1, false) // kubelet restarts
	r.advance(t, 1, time.Second)
	r.isReady(t, 1, true)
	r.annotate(t, 1, contract.RevisionAnnotation, proxied)
	r.advance(t, 1, time.Second)
	r.advance(t, 1, v1alpha1.DefaultSettleTime+time.Second)
	if one = r.get(t, 1); one.Status.Phase != v1alpha1.PhaseReady || one.Status.Revision != proxied ||
		one.Status.HasSlot() || r.statusWrites > writes+2 {
		t.Errorf("%d more writes of the status: %+v", r.statusWrites-writes, one.Status)
	}
	if _, labelled := r.node(t, 1).Labels[contract.UpgradingLabel]; labelled {
		t.Error("the status still shows a slot")
	}
	pods, err := r.pods.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 {
		t.Errorf("pods %v, %v", pods, err)
	}
	r.reconcile(t, 2)
	if told := r.node(t, 2).Annotations[contract.DesiredRevisionAnnotation]; told != proxied {
		t.Errorf("the second daemon was told revision %s", told)
	}
}
