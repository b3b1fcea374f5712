package instance

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// The cache of a new operator may not contain the last writes of the previous operator. If only the cache contains a
// slot, the slot was already released, and may belong to a different host.
func TestAPlaceThatOnlyAStaleCacheShowsDisruptsNobody(t *testing.T) {
	t.Parallel()
	for name, shown := range map[string]func(r *rig, status *v1alpha1.WindowsInstanceStatus){
		"a slot that drains for an upgrade": func(r *rig, status *v1alpha1.WindowsInstanceStatus) {
			status.Phase = v1alpha1.PhaseUpdating
			status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: second,
				Step: v1alpha1.StepDraining, Since: journey.Seconds(r.clock)}
		},
		"a slot that drains for a reboot": func(r *rig, status *v1alpha1.WindowsInstanceStatus) {
			status.Phase = v1alpha1.PhaseRebooting
			status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityReboot,
				Step: v1alpha1.StepDraining, Since: journey.Seconds(r.clock)}
		},
		"a slot of a reboot": func(r *rig, status *v1alpha1.WindowsInstanceStatus) {
			status.Phase = v1alpha1.PhaseRebooting
			status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityReboot, BootID: "boot-1",
				Step: v1alpha1.StepSwitching, Since: journey.Seconds(r.clock)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := steady(t, 1)
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
				c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0))
			})
			r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
			blocked := false
			r.evicts(&blocked)
			r.pod(t, 1, "web")
			before := r.node(t, 1)
			r.restart(t)
			r.stale = r.get(t, 1)
			r.stale.ResourceVersion = "1"
			r.stale.Status.Slot = &v1alpha1.Slot{Since: new(journey.Seconds(r.clock))}
			shown(r, &r.stale.Status)
			for range 3 {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err != nil {
					t.Fatal(err)
				}
			}
			after := r.node(t, 1)
			if after.Spec.Unschedulable || !maps.Equal(before.Annotations, after.Annotations) {
				t.Errorf("the node is cordoned: %v, annotations %v, before %v", after.Spec.Unschedulable,
					after.Annotations, before.Annotations)
			}
			if pods, err := r.pods.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{
				FieldSelector: "spec.nodeName=" + before.Name}); err != nil || len(pods.Items) != 1 {
				t.Errorf("pods were evicted: %v %v", pods, err)
			}
			if i := r.get(t, 1); i.Status.HasSlot() {
				t.Errorf("the instance has a slot: %+v", i.Status.Slot)
			}
		})
	}
}

// The cache still contains a pause that has ended. The host must keep its slot.
func TestAPauseThatOnlyAStaleCacheShowsKeepsThePlace(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepDraining, contract.ReasonDraining)
	r.stale = r.get(t, 1)
	r.stale.ResourceVersion, r.stale.Spec.Paused = "1", true
	r.reconcile(t, 1)
	if !r.get(t, 1).Status.HasSlot() {
		t.Error("the slot is released")
	}
}

func TestWhatTheOperatorWroteItselfIsAwaitedInTheCache(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	before := r.get(t, 1)
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.stale = before
	r.parts.Live = nil // fail if anything is read without the cache
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)})
	if err != nil || result.RequeueAfter != lagRetry {
		t.Errorf("reconciled again in %s, %v", result.RequeueAfter, err)
	}
}

func TestAQuietHostIsNotReadPastTheCache(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.restart(t)
	r.parts.Live = nil // fail if anything is read without the cache
	for range 3 {
		r.reconcile(t, 1)
	}
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

// According to a stale cache, a Node in service is missing or has been NotReady for a long time. The operator must not
// join the Node's host again because of this. No slot is free, so a join would disrupt the node without a slot.
func TestANodeThatOnlyAStaleCacheShowsAsOutIsNotTakenOutOfService(t *testing.T) {
	t.Parallel()
	for name, lags := range map[string]func(r *rig){
		"gone": func(r *rig) { r.unseen = r.machine(1).Facts().Hostname },
		"not Ready": func(r *rig) {
			r.isReady(t, 1, false)
			r.staleNode = r.node(t, 1)
			r.isReady(t, 1, true)
			r.clock = r.clock.Add(20 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := steady(t, 1)
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
				c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0))
			})
			blocked := false
			r.evicts(&blocked)
			r.pod(t, 1, "web")
			calls, reads := len(r.machine(1).Calls()), r.liveNodes
			lags(r)
			for range 3 {
				r.reconcile(t, 1)
			}
			r.staleNode, r.unseen = nil, ""
			if node := r.node(t, 1); node.Spec.Unschedulable || len(r.machine(1).Calls()) != calls {
				t.Errorf("cordoned: %v, calls %v", node.Spec.Unschedulable, r.machine(1).Calls()[calls:])
			}
			if r.liveNodes-reads > 3 {
				t.Errorf("the Node was read %d times without the cache", r.liveNodes-reads)
			}
			r.reconcile(t, 1)
			r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
			reads = r.liveNodes
			r.reconcile(t, 1)
			if r.liveNodes != reads {
				t.Error("the Node of a quiet host is read without the cache")
			}
		})
	}
}

// The node becomes Ready while its host is joined again, but the cache does not show this yet.
func TestANodeThatIsBackUnseenIsNotJoinedAgainWithoutAPlace(t *testing.T) {
	t.Parallel()
	for name, lags := range map[string]func(r *rig){
		"not Ready": func(r *rig) {
			r.staleNode = r.node(t, 1)
			r.isReady(t, 1, true)
		},
		"gone": func(r *rig) {
			r.isReady(t, 1, true)
			r.unseen = r.machine(1).Facts().Hostname
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := steady(t, 1)
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
				c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0))
			})
			r.isReady(t, 1, false)
			r.clock = r.clock.Add(20 * time.Minute)
			calls := len(r.machine(1).Calls())
			r.looked = func() {
				if slices.Contains(r.machine(1).Calls()[calls:], contract.VerbPreflight) {
					r.looked = nil
					lags(r)
				}
			}
			r.reconcile(t, 1)
			if made := r.machine(1).Calls()[calls:]; slices.Contains(made, contract.VerbBootstrap) ||
				!slices.Contains(made, contract.VerbPreflight) {
				t.Errorf("calls %v", made)
			}
		})
	}
}

func TestANodeThatOnlyAStaleCacheDoesNotShowIsRemovedWithAPlace(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
		c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0))
	})
	calls := len(r.machine(1).Calls())
	r.unseen = r.machine(1).Facts().Hostname
	r.remove(t, 1)
	for range 3 {
		r.reconcile(t, 1)
	}
	if !r.exists(t, 1) {
		t.Fatal("the host is removed without a slot")
	}
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonRemovalPending) || len(r.machine(1).Calls()) != calls {
		t.Errorf("%s %s, calls %v", i.Status.Phase, i.Status.Reason(), r.machine(1).Calls()[calls:])
	}
}

// The Node is missing in the cache, but exists. The removal must evict its pods and delete it.
func TestARemovalLeavesNoNodeThatTheCacheDoesNotShow(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.unseen = r.machine(1).Facts().Hostname
	r.remove(t, 1)
	r.reconcile(t, 1)
	r.reconcile(t, 1)
	if !r.exists(t, 1) {
		t.Fatal("the host is removed although it has pods")
	}
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonDraining) {
		t.Fatalf("%s %s: %s", i.Status.Phase, i.Status.Reason(), i.Status.Message())
	}
	blocked = false
	for range 3 {
		if r.exists(t, 1) {
			r.advance(t, 1, 3*time.Second)
		}
	}
	r.unseen = ""
	nodes := &corev1.NodeList{}
	if err := r.api.List(t.Context(), nodes); err != nil || len(nodes.Items) != 0 || r.exists(t, 1) {
		t.Errorf("nodes are left: %v %v", nodes.Items, err)
	}
}

// After a restart or a change of the leader, the cache of instances may lag behind the cache of Nodes. The operator
// must not set a Node back to an old revision because of this.
func TestARevisionIsPutRightByNoStaleInstance(t *testing.T) {
	t.Parallel()
	r := staged(t, 1)
	r.reconcile(t, 1)
	before := r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepStaging, contract.ReasonStaging)
	r.switched(t, 1)
	r.arrives(t, 1, second)
	r.restart(t)
	r.stale = before
	for range 2 {
		r.reconcile(t, 1)
		if a := r.node(t, 1).Annotations; a[contract.DesiredRevisionAnnotation] != second {
			t.Errorf("the daemon is told revision %s", a[contract.DesiredRevisionAnnotation])
		}
	}
}

// The live read must not discard the earlier decisions of the same reconcile.
func TestAHostThatRecoversIsInServiceAtOnceAlsoWhenItsRevisionIsPutRight(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.isReady(t, 1, false)
	r.clock = r.clock.Add(20 * time.Minute)
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.reconcile(t, 1)
	r.isReady(t, 1, true)
	r.changes(t, 1, func(n *corev1.Node) {
		n.Annotations[contract.BootIDAnnotation] = "1"
		delete(n.Annotations, contract.DesiredRevisionAnnotation)
	})
	r.clock = r.clock.Add(time.Hour)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("%s, %s: %s", i.Status.Phase, i.Status.Reason(), i.Status.Message())
	}
}

// A different machine has the address of a node in service. According to the cache only, the node is down.
func TestAHostThatServesIsNotTakenForReplacedByAStaleCache(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.machine(1).Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonHostKeyMismatch, "another"))
	r.remove(t, 1)
	r.reconcile(t, 1)
	r.isReady(t, 1, false)
	r.staleNode = r.node(t, 1)
	r.isReady(t, 1, true)
	r.clock = r.clock.Add(20 * time.Minute)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonHostKeyMismatch) {
		t.Errorf("%s %s: %s", i.Status.Phase, i.Status.Reason(), i.Status.Message())
	}
	r.staleNode = nil
	r.isReady(t, 1, false)
	r.clock = r.clock.Add(20 * time.Minute)
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Error("the instance of a replaced host still exists")
	}
}

func TestAHostThatWentWithItsMachineLeavesNoNodeThatTheCacheDoesNotShow(t *testing.T) {
	t.Parallel()
	r, cloud := ofMachine(t)
	r.join(t, 1)
	r.discard(t, 1)
	r.reconcile(t, 1)
	cloud.set(journey.Origin{})
	r.unseen = r.machine(1).Facts().Hostname
	r.reconcile(t, 1)
	r.unseen = ""
	if nodes := (&corev1.NodeList{}); r.exists(t, 1) || r.api.List(t.Context(), nodes) != nil || len(nodes.Items) != 0 {
		t.Errorf("nodes are left: %v", nodes.Items)
	}
}

// listsAgain removes a host from the list. When its instance is deleted, it adds the host to the list again.
func (r *rig) listsAgain(t *testing.T, n int) {
	t.Helper()
	r.remove(t, n)
	for range 3 {
		if r.exists(t, n) {
			r.advance(t, n, 3*time.Second)
		}
	}
	again := listed(n)[0]
	again.SetUID("again")
	if err := r.api.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
}

// A host is removed from the list and listed again. The cache still contains the Node that was deleted with the first
// instance: it is Ready, has the desired revision, and contains the same instance name. The operator must not conclude
// from this Node that kubelet already has its certificate.
func TestAHostThatIsListedAgainIsNotTakenForTheNodeThatItWas(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	deleted := r.node(t, 1)
	r.listsAgain(t, 1)
	r.staleNode = deleted
	for range 3 {
		r.reconcile(t, 1)
		r.sign(t)
	}
	r.expect(t, 1, v1alpha1.PhaseAdopting, "", contract.ReasonNodePending)
	if i := r.get(t, 1); len(i.Status.BootstrapCredentials) == 0 || i.Status.NodeUID != "" || i.Status.Failures != 0 {
		t.Errorf("credentials %v, Node %q, %d failures", i.Status.BootstrapCredentials, i.Status.NodeUID, i.Status.Failures)
	}
	// kubelet has its certificate, and registers. According to the cache, even the old Node still exists.
	r.staleNode = nil
	r.register(t, 1, "")
	r.staleNode = deleted
	r.reconcile(t, 1)
	i := r.expect(t, 1, v1alpha1.PhaseConfirming, "", contract.ReasonRevisionPending)
	r.staleNode, r.unseen = nil, deleted.Name
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseConfirming, "", contract.ReasonRevisionPending)
	r.unseen = ""
	if node := r.node(t, 1); i.Status.NodeUID != string(node.UID) || i.Status.Failures != 0 {
		t.Errorf("the instance adopted Node %s, not %s", i.Status.NodeUID, node.UID)
	}
	r.register(t, 1, r.version)
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

// A new operator takes over. Its cache still contains the last phase of the first join, but the instance has changed to
// a second revision since then. Now the first revision is desired again, and the budget is zero, so nothing may be
// disrupted.
func TestAPhaseThatOnlyAStaleCacheShowsTellsNoRevision(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1)
	r.register(t, 1, "")
	r.reconcile(t, 1)
	r.sign(t)
	r.reconcile(t, 1)
	stale := r.expect(t, 1, v1alpha1.PhaseConfirming, "", contract.ReasonRevisionPending)
	r.register(t, 1, first)
	r.reconcile(t, 1)
	r.annotate(t, 1, contract.BootIDAnnotation, "boot-1")
	r.reconcile(t, 1)
	r.version = second
	r.switched(t, 1)
	r.arrives(t, 1, second)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)) })
	r.version = first
	r.restart(t)
	r.stale = stale
	for range 3 {
		r.reconcile(t, 1)
		if a := r.node(t, 1).Annotations; a[contract.DesiredRevisionAnnotation] != second {
			t.Fatalf("the daemon is told revision %s", a[contract.DesiredRevisionAnnotation])
		}
	}
}

// Because of another client's finalizer, a Node that was deleted with the host's first instance still exists.
func TestANodeThatIsBeingDeletedIsNotAdopted(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.changes(t, 1, func(n *corev1.Node) { n.Finalizers = []string{"example.com/others"} })
	r.listsAgain(t, 1)
	for range 4 {
		r.reconcile(t, 1)
		r.sign(t)
	}
	i := r.expect(t, 1, v1alpha1.PhaseAdopting, "", contract.ReasonNodePending)
	if i.Status.NodeUID != "" || len(i.Status.BootstrapCredentials) == 0 {
		t.Errorf("the instance adopted %q; credentials %v", i.Status.NodeUID, i.Status.BootstrapCredentials)
	}
}

// Only the host itself says that the Node's address belongs to it. The operator may believe this only if the Node was
// created after the host got its token, even if the cache did not contain the Node before.
func TestANodeThatTheCacheDidNotShowIsStillAnothers(t *testing.T) {
	t.Parallel()
	for _, unseen := range []bool{false, true} {
		r := newRig(t, listed(1)...)
		r.machine(1).Change(func(f *contract.HostFacts) { f.NodeIP = "10.9.9.9" })
		other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.machine(1).Facts().Hostname, UID: "other",
			Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
		if err := r.api.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		other.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.9.9"}}
		if err := r.api.Status().Update(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if unseen {
			r.unseen = other.Name
		}
		r.reconcile(t, 1)
		r.unseen = ""
		r.reconcile(t, 1)
		if i := r.get(t, 1); i.Status.NodeUID != "" {
			t.Errorf("unseen %v: the instance adopted Node %s", unseen, i.Status.NodeUID)
		}
	}
}
