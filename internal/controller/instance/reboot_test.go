package instance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubetesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/disrupt"
)

// steady returns hosts that have joined and have the desired revision.
func steady(t *testing.T, hosts ...int) *rig {
	t.Helper()
	r := staged(t, hosts...)
	r.version = first
	return r
}

// boots simulates a host that reboots and then reports a new boot ID.
func (r *rig) boots(t *testing.T, n int, boot string) {
	t.Helper()
	r.isReady(t, n, false)
	r.advance(t, n, time.Minute)
	r.expect(t, n, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	reboots := r.memory(r.get(t, n)).reboots
	r.restart(t)
	if err := r.recall(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.memory(r.get(t, n)).reboots = reboots // a new operator would start at 0
	r.isReady(t, n, true)
	r.annotate(t, n, contract.BootIDAnnotation, boot)
	r.reconcile(t, n)
	r.expect(t, n, v1alpha1.PhaseRebooting, v1alpha1.StepVerifying, contract.ReasonSettling)
	r.advance(t, n, time.Minute) // then the operator deletes its request
	r.reconcile(t, n)
}

func TestANodeIsRebootedWhenSomebodyAsksForIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		asks    string
		pending bool
		reboots bool
	}{
		"a user":                            {asks: contract.RebootRequestedAnnotation, reboots: true},
		"a tool":                            {asks: contract.RebootRequiredAnnotation, reboots: true},
		"Windows, and the user allows it":   {asks: contract.RebootPendingAnnotation, pending: true, reboots: true},
		"Windows, and the user is not sure": {asks: contract.RebootPendingAnnotation},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := steady(t, 1)
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.RebootWhenPending = test.pending })
			blocked := false
			r.evicts(&blocked)
			r.pod(t, 1, "web")
			r.annotate(t, 1, test.asks, "")
			dials := r.machine(1).Dials()
			r.reconcile(t, 1)
			if !test.reboots {
				r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
				return
			}
			i := r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepDraining, contract.ReasonDraining)
			if n := r.node(t, 1); i.Status.Reboot() == nil || !n.Spec.Unschedulable ||
				n.Annotations[contract.RebootApprovedAnnotation] != "" {
				t.Fatalf("during the drain: %+v, %v", i.Status.Slot, n.Annotations)
			}
			r.reconcile(t, 1)
			r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
			if n := r.node(t, 1); n.Annotations[contract.RebootApprovedAnnotation] != "boot-1" {
				t.Fatalf("the Node's annotations for the daemon are %v", n.Annotations)
			}
			if test.pending {
				// Windows no longer requires a reboot.
				r.changes(t, 1, func(n *corev1.Node) { delete(n.Annotations, contract.RebootPendingAnnotation) })
			}
			r.boots(t, 1, "boot-2")
			i = r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
			n := r.node(t, 1)
			for _, gone := range []string{test.asks, contract.RebootApprovedAnnotation, contract.CordonedAnnotation} {
				if _, there := n.Annotations[gone]; there {
					t.Errorf("%s is still there", gone)
				}
			}
			if i.Status.HasSlot() || n.Spec.Unschedulable || n.Labels[contract.UpgradingLabel] != "" ||
				r.machine(1).Dials() != dials {
				t.Errorf("status %+v, %v", i.Status, n.Labels)
			}
			r.advance(t, 1, time.Hour)
			r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
		})
	}
}

func TestANodeWhoseRolloutIsHaltedIsRebootedAllTheSame(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.switched(t, 1)
	r.annotate(t, 1, contract.ApplyStatusAnnotation, "ServiceFailed: revision "+second+": kubelet ended right after "+
		"its start; the host is held at "+first)
	r.reconcile(t, 1)
	r.changes(t, 1, func(n *corev1.Node) {
		n.Annotations[contract.RevisionAnnotation] = first
		delete(n.Annotations, contract.ApplyStatusAnnotation)
	})
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	r.annotate(t, 2, contract.StagedAnnotation, second)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRolloutHalted)

	r.annotate(t, 2, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 2)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	r.boots(t, 2, "boot-2")
	r.reconcile(t, 2)
	i := r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRolloutHalted)
	n := r.node(t, 2)
	if _, asked := n.Annotations[contract.RebootRequestedAnnotation]; asked || i.Status.HasSlot() ||
		i.Status.DesiredRevision != first || n.Spec.Unschedulable {
		t.Errorf("annotations %v, status %+v", n.Annotations, i.Status)
	}
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Annotations = map[string]string{contract.ResumeRolloutAnnotation: second}
	})
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

func TestANodeThatIsToBeUpdatedAndRebootedIsDrainedOnce(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	blocked := false
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.annotate(t, 1, contract.StagedAnnotation, second)
	r.reconcile(t, 1)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.arrives(t, 1, second)
	i := r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	n := r.node(t, 1)
	if !n.Spec.Unschedulable || n.Annotations[contract.RebootApprovedAnnotation] != "boot-1" ||
		!i.Status.HasSlot() || i.Status.Reboot() == nil ||
		i.Status.Revision != second || i.Status.Upgrade() != nil {
		t.Fatalf("after the update: %+v, %v", i.Status, n.Annotations)
	}
	r.reconcile(t, 2)
	r.annotate(t, 2, contract.StagedAnnotation, second)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonBudgetExhausted)
	r.boots(t, 1, "boot-2")
	i = r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
	if n = r.node(t, 1); n.Spec.Unschedulable || i.Status.HasSlot() || r.memory(i).reboots.Count != 1 ||
		n.Annotations[contract.RebootRequestedAnnotation] != "" {
		t.Errorf("at the end: %+v, %v", i.Status, n.Annotations)
	}
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
}

// A node that was rebooted too often must return to service with its update.
func TestAnUpdateDoesNotGoOnWithARebootAfterThreeInARow(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.switched(t, 1)
	i := r.get(t, 1)
	r.memory(i).reboots = disrupt.Reboots{Count: disrupt.MaxReboots, Last: r.clock}
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.arrives(t, 1, second)
	if i = r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || i.Status.Revision != second ||
		i.Status.HasSlot() || r.node(t, 1).Spec.Unschedulable {
		t.Errorf("the status is %+v", i.Status)
	}
}

func TestAHostThatDoesNotComeBackIsReportedAndHoldsOnePlace(t *testing.T) {
	t.Parallel()
	r := steady(t, 1, 2, 3)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2)) })
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.isReady(t, 1, false)
	r.slow = hosttestUnreachable
	r.advance(t, 1, 21*time.Minute)
	i := r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebootTimedOut)
	if !i.Status.HasSlot() || fixOf(i) == "" {
		t.Errorf("status %+v", i.Status)
	}
	r.advance(t, 1, time.Hour)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebootTimedOut)
	for _, n := range []int{2, 3} {
		r.annotate(t, n, contract.RebootRequestedAnnotation, "")
		r.reconcile(t, n)
	}
	r.expect(t, 2, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	r.expect(t, 3, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonBudgetExhausted)
	r.isReady(t, 1, true)
	r.annotate(t, 1, contract.BootIDAnnotation, "boot-2") // the host boots at last
	r.reconcile(t, 1)
	r.advance(t, 1, time.Minute)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

// The host runs, but kubelet or the daemon doesn't run, because a Windows update broke or disabled a service.
func TestAHostWhoseNodeStaysDownAfterItsRebootIsJoinedAgain(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.isReady(t, 1, false)
	dials := r.machine(1).Dials()
	r.advance(t, 1, 19*time.Minute)
	if r.machine(1).Dials() > dials {
		t.Fatal("the host was dialled while it may still be booting")
	}
	r.advance(t, 1, 2*time.Minute)
	if r.node(t, 1).Annotations[contract.RebootApprovedAnnotation] != "" {
		t.Error("the join starts the daemon, which may reboot the host")
	}
	r.joinsAgain(t, 1)
	r.isReady(t, 1, true)
	r.annotate(t, 1, contract.BootIDAnnotation, "boot-2")
	for range 4 {
		r.advance(t, 1, time.Minute)
	}
	if i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady); r.machine(1).Dials() != dials+1 ||
		i.Status.HasSlot() || r.node(t, 1).Annotations[contract.RebootRequestedAnnotation] != "" ||
		r.node(t, 1).Spec.Unschedulable {
		t.Errorf("%d dials, %+v", r.machine(1).Dials()-dials, i.Status)
	}
}

// The host has already rebooted, so a second drain or reboot would be useless.
func TestAHostThatIsJoinedAgainAfterItsRebootIsNotDrainedAnew(t *testing.T) {
	t.Parallel()
	for name, comesBack := range map[string]func(t *testing.T, r *rig){
		"and its daemon reports another boot": func(t *testing.T, r *rig) {
			t.Helper()
			r.advance(t, 1, 21*time.Minute)
			r.joinsAgain(t, 1)
			r.isReady(t, 1, true)
			r.annotate(t, 1, contract.BootIDAnnotation, "boot-2")
		},
		"and its daemon reports another boot a moment later": func(t *testing.T, r *rig) {
			t.Helper()
			r.advance(t, 1, 21*time.Minute)
			r.isReady(t, 1, true)
			r.joinsAgain(t, 1)
			r.advance(t, 1, 10*time.Second)
			r.annotate(t, 1, contract.BootIDAnnotation, "boot-2")
		},
		"and fails, while its node is Ready by itself a moment before its daemon": func(t *testing.T, r *rig) {
			t.Helper()
			r.machine(1).Fail(string(contract.VerbPreflight), contract.NewProblem(contract.ReasonConnectionLost, "broken"))
			r.advance(t, 1, 21*time.Minute)
			r.clock = r.clock.Add(10 * time.Minute)
			r.isReady(t, 1, true)
			r.reconcile(t, 1)
			r.advance(t, 1, 10*time.Second)
			r.annotate(t, 1, contract.BootIDAnnotation, "boot-2")
		},
		"for the second time, and no window is open": func(t *testing.T, r *rig) {
			t.Helper()
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
				c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * *",
					Duration: metav1.Duration{Duration: time.Hour}}}
			})
			r.machine(1).Fail(string(contract.VerbPreflight), contract.NewProblem(contract.ReasonConnectionLost, "broken"))
			r.advance(t, 1, 21*time.Minute)
			r.isReady(t, 1, true)
			r.advance(t, 1, 10*time.Minute)
			r.advance(t, 1, time.Minute)
			r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonMaintenanceWindowClosed)
			r.isReady(t, 1, false)
			r.machine(1).Fail(string(contract.VerbPreflight), nil)
			r.advance(t, 1, 11*time.Minute)
			r.joinsAgain(t, 1)
			r.isReady(t, 1, true)
			r.annotate(t, 1, contract.BootIDAnnotation, "boot-2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := steady(t, 1)
			if err := r.api.DeleteAllOf(t.Context(), &certificatesv1.CertificateSigningRequest{}); err != nil {
				t.Fatal(err)
			}
			r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
			r.reconcile(t, 1)
			r.isReady(t, 1, false)
			evictions := 0
			r.pods.PrependReactor("create", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
				if a.GetSubresource() != "eviction" {
					return false, nil, nil
				}
				evictions++
				return true, nil, nil
			})
			r.pod(t, 1, "web")
			comesBack(t, r)
			evictions = 0 // don't count the evictions of the join
			for range 10 {
				r.advance(t, 1, time.Minute)
			}
			i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
			n := r.node(t, 1)
			if _, asked := n.Annotations[contract.RebootRequestedAnnotation]; asked || evictions > 0 || r.memory(i).reboots.Count != 1 ||
				i.Status.HasSlot() || n.Spec.Unschedulable {
				t.Errorf("%d evictions, %+v, %v", evictions, i.Status, n.Annotations)
			}
		})
	}
}

// After a reboot, the next revision may have to wait for a long time. A reboot that is requested during this wait must
// be a new reboot.
func TestARebootIsOverBeforeAnotherRevisionHasItsTurn(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.isReady(t, 1, false)
	r.advance(t, 1, 21*time.Minute)
	r.joinsAgain(t, 1)
	r.isReady(t, 1, true)
	r.reconcile(t, 1)
	r.version = second
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * *",
			Duration: metav1.Duration{Duration: time.Hour}}}
	})
	r.reconcile(t, 1)
	r.annotate(t, 1, contract.BootIDAnnotation, "boot-2")
	r.annotate(t, 1, contract.StagedAnnotation, second)
	for range 3 {
		r.advance(t, 1, time.Minute)
	}
	i := r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonMaintenanceWindowClosed)
	if _, asked := r.node(t, 1).Annotations[contract.RebootRequestedAnnotation]; asked || r.memory(i).reboots.Count != 1 ||
		i.Status.Reboot() != nil {
		t.Fatalf("after the reboot, the status is %+v", i.Status)
	}
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaintenanceWindows = nil })
	r.advance(t, 1, time.Hour)
	r.arrives(t, 1, second)
	for range 60 {
		r.advance(t, 1, time.Minute)
	}
	if i = r.get(t, 1); i.Status.Phase != v1alpha1.PhaseRebooting || i.Status.Revision != second {
		t.Errorf("after the second request, the status is %+v", i.Status)
	}
}

// A daemon did not execute a reboot, and its host can't be joined again. The daemon may recover, so the operator must
// keep watching it.
func TestADaemonThatMissedARebootIsNotGivenUpWhereItsHostCannotBeJoined(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.advance(t, 1, 24*time.Hour)
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.slow = hosttestUnreachable
	for range 25 {
		r.advance(t, 1, time.Minute)
	}
	r.changes(t, 1, func(n *corev1.Node) { delete(n.Annotations, contract.RebootRequestedAnnotation) })
	for range 25 {
		r.advance(t, 1, time.Minute)
	}
	if i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady); i.Status.Reboot() != nil {
		t.Errorf("the reboot was not requested any more, but the status is %+v", i.Status)
	}
}

// If a daemon gets no requests for weeks, the operator may notice that the daemon is dead only when the host must be
// rebooted.
func TestADaemonThatDoesNotRebootItsHostIsJoinedAgainFirst(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.advance(t, 1, 24*time.Hour)
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	dials, drains := r.machine(1).Dials(), 0
	for range 60 {
		before := r.get(t, 1).Status.Phase
		r.advance(t, 1, time.Minute)
		if r.machine(1).Dials() > dials {
			break
		}
		if i := r.get(t, 1); i.Status.Phase == v1alpha1.PhaseRebooting && before != i.Status.Phase {
			drains++
		}
	}
	if drains != 1 || r.machine(1).Dials() == dials {
		t.Fatalf("within an hour the node was drained %d times, and its host joined again: %v",
			drains, r.machine(1).Dials() > dials)
	}
	r.joinsAgain(t, 1)
	r.advance(t, 1, time.Minute)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	r.boots(t, 1, "boot-2")
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

// If an operator ends between two writes, it has decided on the reboot but has not requested it from the daemon. If a
// new operator continues much later, the daemon must still get its full time.
func TestADaemonThatIsToldLateToRebootItsHostHasItsTime(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.broken["approval"] = apierrors.NewServiceUnavailable("the operator ends")
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonAPICallFailed)
	delete(r.broken, "approval")
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.restart(t)
	r.reconcile(t, 1)
	r.clock = r.clock.Add(24 * time.Hour)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
	for range 3 {
		r.advance(t, 1, 5*time.Minute)
		r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	}
	if approved := r.node(t, 1).Annotations[contract.RebootApprovedAnnotation]; approved != "boot-1" {
		t.Fatalf("the reboot of boot %q is approved", approved)
	}
	r.advance(t, 1, 11*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDaemonUnresponsive)
}

// The rollout is halted, so the host must be joined again at its previous revision.
func TestADaemonThatDoesNotRebootItsHostIsJoinedAgainFirstAlsoWhereTheRolloutIsHalted(t *testing.T) {
	t.Parallel()
	r, held := genuine(t, 1, 2)
	r.talks(t, 1, 2)
	r.goesBack(t, 1, held)
	r.annotate(t, 2, contract.RebootRequestedAnnotation, "")
	dials, drains := r.machine(2).Dials(), 0
	for range 120 {
		before := r.get(t, 2).Status.Phase
		r.advance(t, 2, time.Minute)
		if r.machine(2).Dials() > dials {
			break
		}
		if i := r.get(t, 2); i.Status.Phase == v1alpha1.PhaseRebooting && before != i.Status.Phase {
			drains++
		}
	}
	if drains != 1 || r.machine(2).Dials() == dials {
		t.Fatalf("within two hours the node was drained %d times, and its host joined again: %v",
			drains, r.machine(2).Dials() > dials)
	}
	r.joinsAgain(t, 2)
	if i := r.get(t, 2); i.Status.Revision != held || i.Status.DesiredRevision != held {
		t.Fatalf("the host was joined at another revision: %+v", i.Status)
	}
	r.advance(t, 2, time.Minute)
	r.expect(t, 2, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	r.boots(t, 2, "boot-2")
	if i := r.waitsInService(t, 2); r.memory(i).reboots.Count != 1 || r.machine(2).Dials() != dials+1 {
		t.Errorf("%d dials, status %+v", r.machine(2).Dials()-dials, i.Status)
	}
}

func TestA55_ALoopOfRebootsIsStopped(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.RebootWhenPending = true })
	r.annotate(t, 1, contract.RebootPendingAnnotation, "servicing")
	boot := "boot-1"
	for n := range 3 {
		r.reconcile(t, 1)
		r.advance(t, 1, 10*time.Minute)
		r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
		boot += "x"
		r.boots(t, 1, boot)
		if i := r.get(t, 1); r.memory(i).reboots.Count != int32(n+1) || i.Status.HasSlot() {
			t.Fatalf("after reboot %d: %+v", n+1, i.Status)
		}
	}
	r.advance(t, 1, time.Hour)
	i := r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRebootIneffective)
	if i.Status.HasSlot() || !strings.Contains(i.Status.Message(), "3 times") ||
		condition(i, v1alpha1.ConditionReady) != "True NodeReady" {
		t.Errorf("status %+v", i.Status)
	}
	r.changes(t, 1, func(n *corev1.Node) { delete(n.Annotations, contract.RebootPendingAnnotation) })
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
	r.annotate(t, 1, contract.RebootPendingAnnotation, "servicing")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
}

// A program that requests reboots may withdraw each request, on purpose or by mistake.
func TestA55_ALoopOfRebootsIsStoppedAlthoughEachRequestIsWithdrawn(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	boot := "boot-1"
	for range disrupt.MaxReboots {
		r.annotate(t, 1, contract.RebootRequiredAnnotation, "")
		r.reconcile(t, 1)
		r.advance(t, 1, 10*time.Minute)
		r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
		boot += "x"
		r.boots(t, 1, boot)
		r.changes(t, 1, func(n *corev1.Node) { delete(n.Annotations, contract.RebootRequiredAnnotation) })
		r.reconcile(t, 1)
		r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
	}
	r.annotate(t, 1, contract.RebootRequiredAnnotation, "")
	r.reconcile(t, 1)
	r.advance(t, 1, 10*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRebootIneffective)

	r.changes(t, 1, func(n *corev1.Node) { delete(n.Annotations, contract.RebootRequiredAnnotation) })
	r.reconcile(t, 1)
	r.advance(t, 1, time.Hour)
	r.annotate(t, 1, contract.RebootRequiredAnnotation, "")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
}

// A node waits for something that may never happen. If the node then goes down, no more events about the node arrive.
func TestANodeThatIsNotReadyIsRescuedInTimeWhateverItWaitsFor(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]func(t *testing.T) *rig{
		"a reboot without effect": func(t *testing.T) *rig {
			t.Helper()
			r := steady(t, 1)
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.RebootWhenPending = true })
			r.annotate(t, 1, contract.RebootPendingAnnotation, "servicing")
			for n := range disrupt.MaxReboots {
				r.reconcile(t, 1)
				r.advance(t, 1, 10*time.Minute)
				r.boots(t, 1, fmt.Sprintf("boot-%d", n+2))
			}
			r.advance(t, 1, time.Hour)
			r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRebootIneffective)
			return r
		},
		"a revision that it does not get back to": func(t *testing.T) *rig {
			t.Helper()
			r := staged(t, 1, 2)
			r.switched(t, 1)
			r.annotate(t, 1, contract.ApplyStatusAnnotation, "ServiceFailed: revision "+second+": kubelet ended")
			r.reconcile(t, 1)
			r.annotate(t, 1, contract.ApplyStatusAnnotation, "FileLocked: revision "+first+": an antivirus holds kubelet.exe")
			r.advance(t, 1, 11*time.Minute)
			r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepRollingBack, contract.ReasonRollbackTimedOut)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := waits(t)
			r.isReady(t, 1, false)
			if after := r.reconcile(t, 1).RequeueAfter; after <= 0 || after > 10*time.Minute {
				t.Errorf("the instance is reconciled again after %s", after)
			}
		})
	}
}

func TestNothingBeginsOutsideOfAWindow(t *testing.T) {
	t.Parallel()
	r := staged(t, 1, 2)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * *",
			Duration: metav1.Duration{Duration: time.Hour}}}
	})
	for _, n := range []int{1, 2} {
		r.reconcile(t, n)
		r.annotate(t, n, contract.StagedAnnotation, second)
		r.reconcile(t, n)
		i := r.expect(t, n, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonMaintenanceWindowClosed)
		if !strings.Contains(i.Status.Message(), "2026-01-01T22:00:00Z") {
			t.Errorf("the message is %s", i.Status.Message())
		}
	}
	r.clock = time.Date(2026, 1, 1, 22, 59, 0, 0, time.UTC)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
	r.clock = r.clock.Add(2 * time.Minute)
	r.arrives(t, 1, second) // the update that began in the window is completed
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
	r.reconcile(t, 2)
	r.expect(t, 2, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonMaintenanceWindowClosed)
	r.isReady(t, 2, false)
	r.advance(t, 2, 6*time.Minute) // the node is down, but may come back soon
	if i := r.get(t, 2); i.Status.HasSlot() {
		t.Errorf("status %+v", i.Status)
	}
	r.clock = time.Date(2026, 1, 2, 22, 1, 0, 0, time.UTC)
	r.isReady(t, 2, false)
	r.advance(t, 2, 6*time.Minute)
	if i := r.get(t, 2); !i.Status.HasSlot() {
		t.Errorf("status %+v", i.Status)
	}
}

func TestAReleaseThatIsTooFarAwayIsAConditionAndNoCrash(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.version = "1.3.0-dddddddddd"
	dials := r.machine(1).Dials()
	r.reconcile(t, 1)
	if i := r.get(t, 1); condition(i, v1alpha1.ConditionSkewSupported) != "False SkewUnsupported" ||
		r.machine(1).Dials() == dials {
		t.Errorf("%s, %d connections", condition(i, v1alpha1.ConditionSkewSupported), r.machine(1).Dials()-dials)
	}
	r.sign(t)
	r.reconcile(t, 1)
	r.register(t, 1, r.version)
	r.reconcile(t, 1)
	r.reconcile(t, 1)
	if i := r.get(t, 1); condition(i, v1alpha1.ConditionSkewSupported) != "True Supported" ||
		i.Status.Revision != r.version {
		t.Errorf("%s, %+v", condition(i, v1alpha1.ConditionSkewSupported), i.Status)
	}
}

func TestA73_PodsThatCantRunOnANodeAreAConditionOfItsInstance(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.reconcile(t, 1)
	if i := r.get(t, 1); meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionWorkloadsFit) != nil {
		t.Errorf("conditions %v", i.Status.Conditions)
	}
	found, looked := contract.NewProblem(contract.ReasonLinuxPodPlaced, "ns/logs is for Linux"), true
	r.parts.Misplaced = func(node string) (*contract.Problem, bool) {
		if node != r.get(t, 1).Status.NodeName {
			t.Errorf("asked about %q", node)
		}
		return found, looked
	}
	r.reconcile(t, 1)
	if i := r.get(t, 1); condition(i, v1alpha1.ConditionWorkloadsFit) != "False LinuxPodPlaced" ||
		!meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("conditions %v", i.Status.Conditions)
	}
	found = nil
	r.reconcile(t, 1)
	if i := r.get(t, 1); condition(i, v1alpha1.ConditionWorkloadsFit) != "True Fit" {
		t.Errorf("conditions %v", i.Status.Conditions)
	}
	found = contract.NewProblem(contract.ReasonPodsNotRead, "the pods on the node could not all be read")
	r.reconcile(t, 1)
	if i := r.get(t, 1); condition(i, v1alpha1.ConditionWorkloadsFit) != "Unknown PodsNotRead" {
		t.Errorf("conditions %v", i.Status.Conditions)
	}
}

// An operator that has just started has not checked any pods yet, and the result of the previous operator may be
// outdated.
func TestPodsThatNobodyLookedAtAreNotSaidToFit(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	looked := false
	r.parts.Misplaced = func(string) (*contract.Problem, bool) { return nil, looked }
	if after := r.reconcile(t, 1).RequeueAfter; after == 0 || after > unlookedRequeue {
		t.Errorf("reconciled again after %s", after)
	}
	if i := r.get(t, 1); condition(i, v1alpha1.ConditionWorkloadsFit) != "" {
		t.Errorf("conditions %v", i.Status.Conditions)
	}
	r.parts.Misplaced = func(string) (*contract.Problem, bool) {
		return contract.NewProblem(contract.ReasonLinuxPodPlaced, "ns/logs is for Linux"), true
	}
	r.reconcile(t, 1)
	r.parts.Misplaced = func(string) (*contract.Problem, bool) { return nil, looked }
	r.reconcile(t, 1)
	if i := r.get(t, 1); condition(i, v1alpha1.ConditionWorkloadsFit) != "Unknown PodsNotRead" {
		t.Errorf("conditions %v", i.Status.Conditions)
	}
	looked = true
	r.reconcile(t, 1)
	if i := r.get(t, 1); condition(i, v1alpha1.ConditionWorkloadsFit) != "True Fit" {
		t.Errorf("conditions %v", i.Status.Conditions)
	}
}

// An update may skip minor versions of Kubernetes, because kubelet is a file of the payload like any other.
func TestAKubeletThatIsMinorVersionsNewerIsProven(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.kubelet = "1.36.1"
	r.switched(t, 1)
	r.changes(t, 1, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.33.4" })
	r.arrives(t, 1, second)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonRevisionPending)
	r.changes(t, 1, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.1+build" })
	r.reconcile(t, 1)
	r.advance(t, 1, time.Minute)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

// The daemon responds, and reports why Windows refuses the reboot. A join would not help. A later request may succeed.
func TestAHostThatWindowsDoesNotRebootIsNotJoinedAgain(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	r.annotate(t, 1, contract.ApplyStatusAnnotation, "RebootFailed: a policy forbids it")
	r.reconcile(t, 1)
	i := r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebootFailed)
	if !strings.Contains(i.Status.Message(), ": a policy forbids it (W") {
		t.Errorf("the message is %s", i.Status.Message())
	}
	dials := r.machine(1).Dials()
	r.advance(t, 1, 21*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRebootFailed)
	r.changes(t, 1, func(n *corev1.Node) { delete(n.Annotations, contract.ApplyStatusAnnotation) })
	tries := 0
	for range 60 {
		before := r.get(t, 1).Status.Phase
		r.advance(t, 1, time.Minute)
		if i = r.get(t, 1); i.Status.Phase == v1alpha1.PhaseRebooting && before != i.Status.Phase {
			tries++
			r.annotate(t, 1, contract.ApplyStatusAnnotation, "RebootFailed: a policy forbids it")
		}
	}
	if tries == 0 || r.machine(1).Dials() != dials {
		t.Errorf("the reboot was tried %d more times, and the host was joined %d times",
			tries, r.machine(1).Dials()-dials)
	}
}
