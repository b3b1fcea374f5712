package instance

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// A stale cache shows a node as it was before it was verified. A failed revision halts the rollout for all nodes, so
// the operator must read the API server before it decides that a revision failed.
func TestARevisionThatOnlyAStaleCacheShowsAsFailedIsProven(t *testing.T) {
	t.Parallel()
	const failed = "ServiceFailed: revision " + second + ": kubelet ended; the host is held at " + first
	for name, was := range map[string]func(t *testing.T, r *rig){
		"not applied":           func(*testing.T, *rig) {},
		"applied, not Ready":    func(t *testing.T, r *rig) { r.annotate(t, 1, contract.RevisionAnnotation, second) },
		"refused at a start":    func(t *testing.T, r *rig) { r.annotate(t, 1, contract.ApplyStatusAnnotation, failed) },
		"verified for a moment": func(t *testing.T, r *rig) { r.verifies(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1, 2)
			r.switched(t, 1)
			r.isReady(t, 1, false)
			was(t, r)
			before := r.node(t, 1)
			r.changes(t, 1, func(n *corev1.Node) {
				n.Annotations[contract.RevisionAnnotation] = second
				delete(n.Annotations, contract.ApplyStatusAnnotation)
			})
			r.isReady(t, 1, true)
			r.staleNode = before
			for range 3 {
				r.advance(t, 1, v1alpha1.DefaultVerifyTimeout+time.Minute)
			}
			r.staleNode = nil
			i := r.get(t, 1)
			if i.Status.FailedRevision != "" || r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation] != second {
				t.Fatalf("the node is rolled back: %+v %+v", i.Status.Upgrade(), i.Status.FailedRevision)
			}
			r.advance(t, 1, time.Minute)
			r.advance(t, 1, time.Minute)
			i = r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
			if i.Status.Revision != second || i.Status.HasSlot() || r.node(t, 1).Spec.Unschedulable {
				t.Errorf("status %+v", i.Status)
			}
		})
	}
}

// verifies simulates a node that reports its revision and is then NotReady for a moment. It also reconciles the
// instance.
func (r *rig) verifies(t *testing.T) {
	t.Helper()
	r.annotate(t, 1, contract.RevisionAnnotation, second)
	r.isReady(t, 1, true)
	r.reconcile(t, 1)
	r.isReady(t, 1, false)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonNodeNotReady)
}

// Between the decision about a node's revision and the request to its daemon, the operator may end, a newer revision
// may be published, or a pause may release the slot. In these cases, the daemon must get no request without a new slot.
func TestWhatWasDecidedAndNotToldIsNotToldWithoutAPlace(t *testing.T) {
	t.Parallel()
	manifest := contract.Manifest{Services: []contract.Service{{Name: "kubelet", Command: `C:\k\kubelet.exe`,
		Disruptive: true, Bootstrap: true}}}
	killed := apierrors.NewServiceUnavailable("away")
	for name, decides := range map[string]func(t *testing.T, r *rig) (told string){
		"to roll back": func(t *testing.T, r *rig) string {
			r.switched(t, 1)
			r.annotate(t, 1, contract.ApplyStatusAnnotation, "ServiceFailed: revision "+second+
				": kubelet ended; the host is held at "+first)
			r.broken["node"] = killed
			r.reconcile(t, 1)
			r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepRollingBack, contract.ReasonAPICallFailed)
			return second
		},
		"to continue, with pods that stay": func(t *testing.T, r *rig) string {
			r.publish(t, first, manifest)
			r.version, r.manifest = "1.0.0-cccccccccc", manifest
			r.manifest.EnvironmentVars = map[string]string{"HTTP_PROXY": "http://p:1"}
			r.broken["node"] = killed
			r.reconcile(t, 1)
			if u := r.get(t, 1).Status.Upgrade(); u == nil || u.Step != v1alpha1.StepSwitching || r.node(t, 1).Spec.Unschedulable {
				t.Fatalf("the upgrade is at %+v", u)
			}
			return first
		},
	} {
		for again, next := range map[string]string{"and a newer revision comes": third, "and it is reverted": first} {
			t.Run(name+", "+again, func(t *testing.T) {
				t.Parallel()
				r := staged(t, 1)
				told := decides(t, r)
				delete(r.broken, "node")
				r.restart(t)
				r.version = next
				r.broken["node"] = killed
				r.reconcile(t, 1)
				delete(r.broken, "node")
				r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
					c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0))
				})
				r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
				r.reconcile(t, 1)
				r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
				for range 5 {
					r.advance(t, 1, time.Second)
					i, has := r.get(t, 1), r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation]
					if i.Status.HasSlot() || has != told {
						t.Fatalf("the daemon is told revision %s instead of %s: %+v %+v",
							has, told, i.Status, i.Status.Upgrade())
					}
				}
				r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = nil })
				for range 9 {
					r.annotate(t, 1, contract.StagedAnnotation, next)
					r.changes(t, 1, func(n *corev1.Node) {
						delete(n.Annotations, contract.ApplyStatusAnnotation)
						n.Annotations[contract.RevisionAnnotation] = n.Annotations[contract.DesiredRevisionAnnotation]
					})
					r.advance(t, 1, time.Minute)
				}
				i := r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
				if i.Status.Revision != next || i.Status.HasSlot() {
					t.Errorf("at the end: %+v", i.Status)
				}
			})
		}
	}
}

// A user reverts a setting while a node is between two revisions. Then the daemon's last report contains the desired
// revision, but this report no longer describes the host. The daemon must report again before the node counts as in
// service.
func TestARevisionThatIsPutBackHalfwayIsReportedAnewBeforeTheNodeServes(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.switched(t, 1)
	r.version = first
	for range 4 {
		r.annotate(t, 1, contract.StagedAnnotation, first)
		r.advance(t, 1, time.Minute)
	}
	i := r.get(t, 1)
	if !i.Status.HasSlot() || !r.node(t, 1).Spec.Unschedulable ||
		r.node(t, 1).Annotations[contract.DesiredRevisionAnnotation] != first {
		t.Fatalf("the node serves before its daemon has reported: %+v", i.Status)
	}
	r.arrives(t, 1, first)
	r.advance(t, 1, time.Minute)
	i = r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
	if i.Status.HasSlot() || r.node(t, 1).Spec.Unschedulable {
		t.Errorf("status %+v", i.Status)
	}
}

// A user reverts a revision that broke kubelet and the daemon. The host must be joined again over SSH.
func TestANodeThatARevertDoesNotBringBackIsJoinedOverSSH(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.switched(t, 1)
	r.isReady(t, 1, false)
	r.version = first
	dials := r.machine(1).Dials()
	for range 6 {
		r.annotate(t, 1, contract.StagedAnnotation, first)
		r.advance(t, 1, 10*time.Minute)
	}
	if r.machine(1).Dials() == dials {
		t.Errorf("the host is not joined again: %+v", r.get(t, 1).Status)
	}
}

// A node settles if it is healthy for the whole settling time. An interruption restarts the settling time, even if the
// operator did not check the node during the interruption.
func TestA29_AnInterruptionRestartsTheSettlingTime(t *testing.T) {
	t.Parallel()
	const half = v1alpha1.DefaultSettleTime / 2
	for name, interrupt := range map[string]func(t *testing.T, r *rig){
		"of the node between two looks": func(t *testing.T, r *rig) {
			t.Helper()
			r.clock = r.clock.Add(half)
			r.isReady(t, 1, false)
			r.isReady(t, 1, true)
		},
		"of the revision, reported by the daemon": func(t *testing.T, r *rig) {
			t.Helper()
			r.annotate(t, 1, contract.ApplyStatusAnnotation, "ServiceFailed: kube-proxy ended")
			r.advance(t, 1, half)
			r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonRevisionPending)
			r.changes(t, 1, func(n *corev1.Node) { delete(n.Annotations, contract.ApplyStatusAnnotation) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1)
			r.clock = r.clock.Add(time.Hour) // this operator has been the leader for a long time
			r.switched(t, 1)
			r.annotate(t, 1, contract.RevisionAnnotation, second)
			r.reconcile(t, 1)
			interrupt(t, r)
			r.reconcile(t, 1)
			r.advance(t, 1, half+time.Second)
			r.expect(t, 1, v1alpha1.PhaseUpdating, v1alpha1.StepVerifying, contract.ReasonSettling)
			r.advance(t, 1, half)
			r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
		})
	}
}
