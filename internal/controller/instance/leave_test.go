package instance

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// held returns the number of resources that the operator holds for an instance.
func (r *rig) held(n int) int {
	count := r.machine(n).Open() + r.parts.Slots.Held()
	if _, ok := r.parts.Claims.Owner(r.machine(n).Facts().Hostname); ok {
		count++
	}
	return count
}

// cleanups returns how often a host was cleaned.
func (r *rig) cleanups(n int) int {
	return r.calls(n, contract.VerbCleanup)
}

// calls returns how often a verb was called on a host.
func (r *rig) calls(n int, verb contract.Verb) int {
	return len(slices.DeleteFunc(r.machine(n).Calls(), func(v contract.Verb) bool { return v != verb }))
}

func TestAnInstanceLeavesOnceEvenIfTheCacheLagsBehind(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.remove(t, 1)
	before := r.get(t, 1)
	r.reconcile(t, 1)
	if r.exists(t, 1) || r.held(1) != 0 || r.cleanups(1) != 1 {
		t.Fatalf("exists %v, holds %d, cleaned %d times", r.exists(t, 1), r.held(1), r.cleanups(1))
	}
	told := len(r.events)
	r.stale = before // the event about the deleted Node arrives before the instance's own event
	r.reconcile(t, 1)
	r.stale = nil
	if r.machine(1).Dials() != 2 || r.cleanups(1) != 1 || len(r.events) != told || r.held(1) != 0 {
		t.Errorf("the instance was removed twice: %d connections, cleaned %d times, events %+v",
			r.machine(1).Dials(), r.cleanups(1), r.events)
	}
	r.reconcile(t, 1)
	if len(r.memories) != 0 {
		t.Errorf("the operator still remembers the instance: %+v", r.memories)
	}
	if last := r.events[told-1]; last.reason != eventTeardown || !strings.Contains(last.note, "cleaned") {
		t.Errorf("events %+v", r.events)
	}
}

// The daemon reported that some files can only be deleted at the next boot. An event must pass this report on.
func TestA41_WhatWaitsForARebootOfAHostThatLeavesIsToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.machine(1).Answer(contract.VerbCleanup, contract.CleanupAnswer{RebootAdvised: true})
	first := len(r.events)
	r.remove(t, 1)
	before := r.get(t, 1)
	r.reconcile(t, 1)
	r.stale = before
	r.reconcile(t, 1)
	r.stale = nil
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Fatal("the instance is not removed")
	}
	advice := slices.DeleteFunc(slices.Clone(r.events[first:]), func(e told) bool {
		return !strings.Contains(e.note, "reboot")
	})
	// There must be one event about the instance, and one about its list entry.
	if len(advice) != 2 || advice[0].regarding == advice[1].regarding {
		t.Errorf("events %+v", r.events[first:])
	}
}

func TestARemovalThatFailsNamesTheWayOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.remove(t, 1)
	if result := r.reconcile(t, 1); result.RequeueAfter < 5*time.Second {
		t.Errorf("retried after %s", result.RequeueAfter)
	}
	i := r.get(t, 1)
	if i.Status.Phase != v1alpha1.PhaseRemoving || i.Status.Failures != 1 ||
		!strings.Contains(fixOf(i), `"removalPolicy":"Force"`) ||
		condition(i, v1alpha1.ConditionReady) != "False Unreachable" {
		t.Errorf("status %+v", i.Status)
	}
	r.reconcile(t, 1)
	if r.machine(1).Dials() != 2 {
		t.Error("retried too early")
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Username = "other" })
	r.reconcile(t, 1)
	if r.machine(1).Dials() != 3 {
		t.Error("after a change by the user, the removal was not retried at once")
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.RemovalPolicy = v1alpha1.RemovalForce })
	r.reconcile(t, 1)
	if r.exists(t, 1) || r.held(1) != 0 {
		t.Errorf("exists %v, holds %d", r.exists(t, 1), r.held(1))
	}
	if last := r.events[len(r.events)-1]; last.reason != eventTeardown || !strings.Contains(last.note, "Force") {
		t.Errorf("event %+v", last)
	}
}

// A user who deletes the CRD also deletes all instances. But the user doesn't want to remove the hosts, so they must
// not be changed.
func TestA80_AnInstanceThatLeavesWithItsKindLeavesTheHostAlone(t *testing.T) {
	t.Parallel()
	absent := apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, "x")
	for name, goes := range map[string]func(r *rig){
		"the CRD is being deleted": func(r *rig) { r.kind.DeletionTimestamp = new(metav1.NewTime(r.clock)) },
		"the CRD is gone":          func(r *rig) { r.broken["kind"] = absent },
		"the CRD is gone, and the host is paused": func(r *rig) {
			r.broken["kind"] = absent
			r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
		},
		"the CRD was created again": func(r *rig) {
			r.kind.CreationTimestamp = metav1.NewTime(r.clock.Add(time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := joined(t)
			calls, dials := len(r.machine(1).Calls()), r.machine(1).Dials()
			goes(r)
			r.remove(t, 1)
			r.reconcile(t, 1)
			if r.exists(t, 1) {
				t.Error("the instance blocks the deletion of the CRD")
			}
			if n := r.node(t, 1); n.Spec.Unschedulable || !n.DeletionTimestamp.IsZero() ||
				len(r.machine(1).Calls()) != calls || r.machine(1).Dials() != dials {
				t.Errorf("the host was changed: %v; node %+v", r.machine(1).Calls()[calls:], n)
			}
		})
	}
	t.Run("the CRD can't be read", func(t *testing.T) {
		t.Parallel()
		r := joined(t)
		r.broken["kind"] = apierrors.NewServiceUnavailable("away")
		r.remove(t, 1)
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err == nil || !r.exists(t, 1) {
			t.Errorf("the removal continues: %v", err)
		}
		delete(r.broken, "kind")
		for range 9 {
			r.advance(t, 1, time.Minute)
			if !r.exists(t, 1) {
				return
			}
		}
		t.Error("the removal does not continue")
	})
}

func TestARemovalOfAPausedInstanceWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.remove(t, 1)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonPaused) || r.machine(1).Dials() != 1 {
		t.Errorf("status %+v", i.Status)
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.RemovalPolicy = v1alpha1.RemovalForce })
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Error("force does not override a pause")
	}
}

func TestFinalizersOfOthersStay(t *testing.T) {
	t.Parallel()
	objects := listed(1)
	objects[0].SetFinalizers([]string{"example.com/mine"})
	r := newRig(t, objects...)
	r.join(t, 1)
	if got := r.get(t, 1).Finalizers; len(got) != 2 {
		t.Fatalf("finalizers %v", got)
	}
	r.remove(t, 1)
	r.reconcile(t, 1)
	if got := r.get(t, 1).Finalizers; !slices.Equal(got, []string{"example.com/mine"}) {
		t.Errorf("finalizers %v", got)
	}
	r.reconcile(t, 1)
	if r.held(1) != 0 || r.cleanups(1) != 1 {
		t.Errorf("the operator holds %d, cleaned %d times", r.held(1), r.cleanups(1))
	}
}

func TestAFinalizerThatCouldNotBeRemovedDoesNotCleanTheHostAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.remove(t, 1)
	r.broken["finalizer"] = apierrors.NewServiceUnavailable("away")
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err == nil {
		t.Error("the finalizer could not be removed, but no error was returned")
	}
	r.broken["finalizer"] = apierrors.NewConflict(schema.GroupResource{Resource: "windowsinstances"}, "10.0.0.1",
		errors.New("newer"))
	if result := r.reconcile(t, 1); result.RequeueAfter != journey.ConflictRetry {
		t.Errorf("retried after %s", result.RequeueAfter)
	}
	delete(r.broken, "finalizer")
	r.reconcile(t, 1)
	if r.exists(t, 1) || r.cleanups(1) != 1 || r.machine(1).Dials() != 2 {
		t.Errorf("exists %v, cleaned %d times over %d connections", r.exists(t, 1), r.cleanups(1), r.machine(1).Dials())
	}
}

func TestAnInstanceThatLostItsFinalizerByForceHoldsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1) // the host is joining
	if r.held(1) != 3 {
		t.Fatalf("the operator holds %d, want a connection, a slot and a claim", r.held(1))
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Finalizers = nil })
	r.remove(t, 1)
	r.reconcile(t, 1)
	if r.held(1) != 0 || len(r.memories) != 0 {
		t.Errorf("the operator holds %d, memories %v", r.held(1), r.memories)
	}
}

func TestAnInstanceThatVanishesWhileItJoinsEndsTheJoin(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.saving = func() {
		r.saving = nil
		r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Finalizers = nil })
		r.remove(t, 1)
	}
	r.reconcile(t, 1)
	if calls := r.machine(1).Calls(); slices.Contains(calls, contract.VerbBootstrap) || r.held(1) != 0 {
		t.Errorf("the host was changed: %v", calls)
	}
}

func TestAnInstanceMadeAnewUnderItsNameStartsAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Finalizers = nil })
	r.remove(t, 1)
	again := listed(1)[0]
	again.SetUID("another")
	if err := r.api.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	r.join(t, 1) // the claim of the old instance must not block the new instance
	if owner, _ := r.parts.Claims.Owner("win-a"); owner.UID != "another" || len(r.memories) != 1 ||
		r.parts.Slots.Held() != 0 {
		t.Errorf("claimed by %+v, memories %v", owner, r.memories)
	}
}

func TestAfterARestartTheFirstEntryOfAHostKeepsIt(t *testing.T) {
	t.Parallel()
	duplicate := listed(2)
	r := newRig(t, append(listed(1), duplicate...)...)
	r.machines["10.0.0.2"] = r.machine(1) // a second address of the same host
	r.join(t, 1)
	r.reconcile(t, 2)
	if i := r.get(t, 2); i.Status.Reason() != string(contract.ReasonHostDuplicate) {
		t.Fatalf("status %+v", i.Status)
	}
	r.restart(t)
	r.clock = r.clock.Add(time.Hour)
	r.reconcile(t, 2) // this time, the second instance is reconciled first
	if i := r.get(t, 2); i.Status.Reason() != string(contract.ReasonHostDuplicate) {
		t.Errorf("the second instance claimed the host: %+v", i.Status)
	}
	requests := r.ofNode(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-a"}})
	if len(requests) != 1 || requests[0].NamespacedName != key(1) {
		t.Errorf("events of the node trigger %v", requests)
	}
	r.remove(t, 2)
	r.reconcile(t, 2)
	if r.exists(t, 2) || r.cleanups(1) != 0 {
		t.Error("the removal of the second instance cleaned the host of the first one")
	}
}

// Clones have the same SSH host key. If the address of a removed clone now belongs to another clone, the removal must
// not clean that clone, because its node is in service.
func TestARemovalCleansNoOtherMachineThatShowsTheHostsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(listed(1), listed(2)...)...)
	a, b := r.machine(1), r.machine(2)
	a.Prove("ssh-rsa AAAAshared")
	b.Prove("ssh-rsa AAAAshared")
	r.join(t, 1)
	r.join(t, 2)
	r.machines[key(1).Name], r.machines[key(2).Name] = b, a
	r.remove(t, 1)
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if i.Status.Reason() != string(contract.ReasonHostDuplicate) || b.Node() != "win-b" ||
		!strings.Contains(i.Status.Message(), `"win-b", not "win-a"`) || !strings.Contains(fixOf(i), "Force") {
		t.Errorf("%s %q %q, and the other node is %q", i.Status.Reason(), i.Status.Message(), fixOf(i), b.Node())
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.RemovalPolicy = v1alpha1.RemovalForce })
	r.reconcile(t, 1)
	if !b.Uploaded() {
		t.Error("files that the other machine's instance may be using were removed")
	}
	r.reconcile(t, 2)
	if r.exists(t, 1) || b.Node() != "win-b" || a.Node() != "win-a" ||
		condition(r.get(t, 2), v1alpha1.ConditionReady) != "True NodeReady" {
		t.Errorf("the instance exists: %t, nodes %q and %q, the other instance %+v", r.exists(t, 1), a.Node(), b.Node(),
			r.get(t, 2).Status)
	}
}

func TestARemovalWaitsForSettingsThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.remove(t, 1)
	r.broken["settings"] = apierrors.NewServiceUnavailable("away")
	r.reconcile(t, 1)
	if r.cleanups(1) != 0 {
		t.Error("the instance was removed all the same")
	}
	delete(r.broken, "settings")
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Error("the instance still exists")
	}
}

func TestAnInstanceIsRemovedInMidUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(listed(1), listed(2)...)...)
	r.join(t, 1)
	r.join(t, 2)
	r.version = second
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	r.remove(t, 1)
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Error("the instance still exists")
	}
	if len(r.woken) == 0 || (<-r.woken).Object.GetName() != "10.0.0.2" {
		t.Error("the host that waited for the slot was not triggered")
	}
}

// A removal may fail until a person fixes the cause. Until then, it must not keep a slot, because only work that
// disrupts pods needs one.
func TestA28_ARemovalThatDoesNotSucceedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	blocked := true
	for name, spoil := range map[string]func(t *testing.T, r *rig){
		"the host is not to be reached": func(_ *testing.T, r *rig) { r.machine(1).Fail(hosttest.Dialling, unreachable()) },
		"pods don't go": func(t *testing.T, r *rig) {
			r.pod(t, 1, "pod-a")
			r.evicts(&blocked)
		},
		"the host is not to be cleaned": func(_ *testing.T, r *rig) {
			r.machine(1).Fail(string(contract.VerbCleanup), contract.NewProblem(contract.ReasonCleanupFailed, "in use"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := staged(t, 1, 2)
			r.annotate(t, 2, contract.StagedAnnotation, second)
			spoil(t, r)
			r.remove(t, 1)
			for range 2 {
				r.advance(t, 1, 11*time.Minute)
			}
			i := r.get(t, 1)
			if i.Status.HasSlot() || i.Status.Failures == 0 || fixOf(i) == "" {
				t.Errorf("the instance keeps its slot, or its status lacks the cause: %+v", i.Status)
			}
			if !r.node(t, 1).Spec.Unschedulable {
				t.Error("pods may still be scheduled to a host that is being removed")
			}
			r.reconcile(t, 2)
			r.reconcile(t, 2)
			r.expect(t, 2, v1alpha1.PhaseUpdating, v1alpha1.StepSwitching, contract.ReasonRevisionPending)
		})
	}
}
