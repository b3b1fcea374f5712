package instance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/test/hosttest"
)

func TestAHostJoinsAndIsThenLeftAlone(t *testing.T) {
	t.Parallel()
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.InstancesConfigMap,
		UID: "list"}}
	r := newRig(t, append(listed(1), list)...)
	r.join(t, 1)
	i := r.get(t, 1)
	if !controllerutil.ContainsFinalizer(i, contract.InstanceFinalizer) || observed(&i.Status) != 1 ||
		!i.Status.Joined() || i.Status.Revision != first {
		t.Errorf("the instance is %+v", i)
	}
	if condition(i, v1alpha1.ConditionProgressing) != "False NodeReady" ||
		condition(i, v1alpha1.ConditionReachable) != "True Connected" ||
		condition(i, v1alpha1.ConditionPreflightPassed) != "True Passed" {
		t.Errorf("conditions %+v", i.Status.Conditions)
	}
	if len(i.Status.Phases) != 8 || slices.ContainsFunc(i.Status.Phases,
		func(p v1alpha1.PhaseTime) bool { return p.Milliseconds == nil }) {
		t.Errorf("phases %+v", i.Status.Phases)
	}
	if len(r.events) != 2 || r.events[0].reason != eventSetup || r.events[1].reason != eventSetup {
		t.Fatalf("events %+v", r.events)
	}
	if about, ok := r.events[1].regarding.(*corev1.ObjectReference); !ok || about.UID != "list" ||
		about.FieldPath != "data{10.0.0.1}" || r.events[1].related == nil {
		t.Errorf("the event for the list is about %+v", r.events[1].regarding)
	}
	before := r.statusWrites
	for range 3 {
		if result := r.reconcile(t, 1); result != (ctrl.Result{}) {
			t.Errorf("a healthy host is reconciled again after %s", result.RequeueAfter)
		}
	}
	r.restart(t)
	r.reconcile(t, 1)
	if r.statusWrites != before || r.machine(1).Dials() != 1 || len(r.events) != 2 {
		t.Errorf("in the steady state: %d writes, %d connections, events %+v", r.statusWrites-before,
			r.machine(1).Dials()-1, r.events)
	}
}

func TestFailuresAreCountedAndBackedOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	want := []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second,
		160 * time.Second, 300 * time.Second, 300 * time.Second}
	for n, wait := range want {
		result := r.reconcile(t, 1)
		i := r.get(t, 1)
		if result.RequeueAfter < wait || result.RequeueAfter > wait*6/5 || i.Status.Failures != int32(n+1) ||
			i.Status.Reason() != string(contract.ReasonUnreachable) || codeOf(i) != "W201" {
			t.Fatalf("failure %d: retried after %s, status %+v", n+1, result.RequeueAfter, i.Status)
		}
		if condition(i, v1alpha1.ConditionReachable) != "False Unreachable" ||
			condition(i, v1alpha1.ConditionReady) != "False Unreachable" {
			t.Errorf("conditions %+v", i.Status.Conditions)
		}
		if phases := i.Status.Phases; len(phases) != 1 || !phases[0].StartTime.Equal(&metav1.MicroTime{Time: r.clock}) {
			t.Errorf("the time of an attempt includes the attempt before: %+v", phases)
		}
		// A reconcile before the time of the next attempt must do nothing.
		wait = result.RequeueAfter
		r.clock = r.clock.Add(wait - time.Second)
		writes, dials := r.statusWrites, r.machine(1).Dials()
		if result = r.reconcile(t, 1); result.RequeueAfter != time.Second || r.statusWrites != writes ||
			r.machine(1).Dials() != dials {
			t.Fatalf("retried too early: %v", result)
		}
		r.clock = r.clock.Add(time.Second)
	}
	if len(r.events) != 2*len(want) || r.events[0].reason != eventSetupFailure ||
		!strings.Contains(r.events[0].note, "W201") {
		t.Errorf("events %+v", r.events)
	}
	r.machine(1).Fail(hosttest.Dialling, nil)
	r.join(t, 1)
	if i := r.get(t, 1); i.Status.Failures != 0 || fixOf(i) != "" {
		t.Errorf("status %+v", i.Status)
	}
}

func TestBackOffOutlivesTheOperator(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.reconcile(t, 1)
	r.restart(t)
	if result := r.reconcile(t, 1); result.RequeueAfter < 5*time.Second || r.machine(1).Dials() != 1 {
		t.Errorf("after a restart: retried after %s, %d connections", result.RequeueAfter, r.machine(1).Dials())
	}
}

// The cache lists instances in any order. After a restart, the instance that already has the Node must claim it first.
func TestA10_AfterARestartWhoHasANodeClaimsItFirst(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]struct{ node, machine string }{
		"the name of the node":         {"win-b", "machine-1"},
		"the host's installation, too": {"win-b", "machine-win-b"},
		"the host's installation only": {"win-x", "machine-win-b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, append(listed(1), listed(2)...)...)
			for n, status := range map[int]v1alpha1.WindowsInstanceStatus{
				1: {NodeName: says.node, Host: &v1alpha1.HostInfo{MachineID: says.machine}},
				2: {NodeName: "win-b", NodeUID: "uid", Host: &v1alpha1.HostInfo{MachineID: "machine-win-b"}},
			} {
				i := r.get(t, n)
				i.Status = status
				if err := r.api.Status().Update(t.Context(), i); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.recall(t.Context()); err != nil {
				t.Fatal(err)
			}
			if owner, _ := r.parts.Claims.Owner("win-b"); owner.Key != key(2) || owner.MachineID != "machine-win-b" {
				t.Errorf("the node belongs to %+v", owner)
			}
		})
	}
}

func TestAChangeByTheUserIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.machine(1).Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonKeyRefused, "no"))
	r.reconcile(t, 1)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Username = "b" })
	r.reconcile(t, 1)
	if r.machine(1).Dials() != 2 {
		t.Errorf("%d connections", r.machine(1).Dials())
	}
}

func TestAReasonStaysOnShowUntilItsPhaseIsPassed(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	unfit := contract.PreflightAnswer{Facts: r.machine(1).Facts(),
		Problems: []contract.Problem{{Reason: contract.ReasonDiskFull, Detail: "1 GiB free"}}}
	r.machine(1).Answer(contract.VerbPreflight, unfit)
	r.reconcile(t, 1)
	var shown []string
	r.saving = func() { shown = append(shown, r.written.Reason()) }
	r.clock = r.clock.Add(time.Minute)
	r.reconcile(t, 1)
	r.saving = nil
	if len(shown) == 0 || slices.ContainsFunc(shown,
		func(reason string) bool { return reason != string(contract.ReasonDiskFull) }) {
		t.Errorf("during the retry, the status showed %v", shown)
	}
	r.machine(1).Answer(contract.VerbPreflight, nil)
	r.clock = r.clock.Add(time.Minute)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonNodePending) ||
		i.Status.Phase != v1alpha1.PhaseAdopting || condition(i, v1alpha1.ConditionPreflightPassed) != "True Passed" {
		t.Errorf("status %+v", i.Status)
	}
}

// While a kubelet requests a new certificate, the key of this request is only in memory.
func TestAKubeletThatLostItsKeyGetsAnotherToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1)
	i := r.expect(t, 1, v1alpha1.PhaseAdopting, "", contract.ReasonNodePending)
	const moment = 15 * time.Second
	first := i.Status.BootstrapCredentials
	r.spent = first[len(first)-1]
	r.clock = r.clock.Add(moment)
	r.reconcile(t, 1) // kubelet may just have got its certificate
	r.expect(t, 1, v1alpha1.PhaseAdopting, "", contract.ReasonNodePending)
	r.clock = r.clock.Add(moment)
	r.reconcile(t, 1)
	if i = r.get(t, 1); i.Status.Reason() != string(contract.ReasonCertificateDenied) || i.Status.Failures != 1 {
		t.Fatalf("after %s: %s %s, and %d failures", 2*moment, i.Status.Reason(), i.Status.Message(), i.Status.Failures)
	}
	r.clock = r.clock.Add(time.Minute)
	r.reconcile(t, 1)
	i = r.get(t, 1)
	if given := len(i.Status.BootstrapCredentials); i.Status.Phase != v1alpha1.PhaseAdopting || given != len(first)+1 {
		t.Errorf("the next attempt is in phase %s, and %d tokens were created", i.Status.Phase, given)
	}
}

// If a host joins again, it already has a Node. Nothing else limits how long this Node may be NotReady.
func TestAKubeletThatLostItsKeyInALaterJoinGetsAnotherToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1)
	r.register(t, 1, "")
	r.sign(t)
	r.reconcile(t, 1)
	i := r.expect(t, 1, v1alpha1.PhaseConfirming, "", contract.ReasonRevisionPending)
	r.isReady(t, 1, false)
	r.spent = i.Status.BootstrapCredentials[0]
	r.clock = r.clock.Add(time.Minute)
	r.reconcile(t, 1)
	if i = r.get(t, 1); i.Status.Reason() != string(contract.ReasonCertificateDenied) || i.Status.Failures != 1 {
		t.Fatalf("the status is %s %s, with %d failures", i.Status.Reason(), i.Status.Message(), i.Status.Failures)
	}
	r.clock = r.clock.Add(time.Minute)
	r.reconcile(t, 1)
	if given := len(r.get(t, 1).Status.BootstrapCredentials); given != 2 {
		t.Errorf("%d tokens were created", given)
	}
}

// If a host is reinstalled after the handover, its node never becomes Ready without a new join.
func TestAHostThatIsLostBeforeItIsConfirmedIsJoinedAnew(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]func(t *testing.T, r *rig){
		"for the first time": func(t *testing.T, r *rig) {
			t.Helper()
			r.reconcile(t, 1)
			r.register(t, 1, "")
			r.isReady(t, 1, false)
		},
		"at the revision that it held": func(t *testing.T, r *rig) {
			t.Helper()
			r.join(t, 1)
			r.isReady(t, 1, false)
			r.advance(t, 1, 11*time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, listed(1)...)
			begins(t, r)
			for range 2 {
				r.sign(t)
				r.reconcile(t, 1)
			}
			i := r.get(t, 1)
			if i.Status.Phase != v1alpha1.PhaseConfirming {
				t.Fatalf("status %+v", i.Status)
			}
			dials := r.machine(1).Dials()
			r.advance(t, 1, 9*time.Minute)
			if r.machine(1).Dials() != dials || r.get(t, 1).Status.Failures != 0 {
				t.Fatal("the operator did not wait for the host")
			}
			r.advance(t, 1, 2*time.Minute)
			i = r.expect(t, 1, v1alpha1.PhaseConfirming, "", contract.ReasonNodeNotReady)
			if i.Status.Failures != 1 || policy.NextAttempt(i).IsZero() || i.Status.HasSlot() {
				t.Fatalf("status %+v", i.Status)
			}
			r.advance(t, 1, time.Minute)
			if r.machine(1).Dials() != dials+1 {
				t.Fatalf("the operator did not connect to the host: %+v", r.get(t, 1).Status)
			}
			r.register(t, 1, r.version)
			for range 3 {
				r.sign(t)
				r.register(t, 1, r.version)
				r.advance(t, 1, time.Second)
			}
			r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
		})
	}
}

// If kubelet reports but the node is not Ready, for example because it has no network plugin, another join would not
// help.
func TestAHostWhoseKubeletReportsIsWaitedForUntilItIsConfirmed(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1)
	r.register(t, 1, "")
	for range 2 {
		r.sign(t)
		r.reconcile(t, 1)
	}
	r.register(t, 1, r.version)
	r.changes(t, 1, func(node *corev1.Node) {
		node.Status.Conditions[0].Status = corev1.ConditionFalse
		node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(r.clock)
	})
	dials := r.machine(1).Dials()
	for range 12 {
		r.advance(t, 1, 10*time.Minute)
	}
	i := r.expect(t, 1, v1alpha1.PhaseConfirming, "", contract.ReasonNodeNotReady)
	if i.Status.Failures != 0 || r.machine(1).Dials() != dials {
		t.Errorf("%d dials more, status %+v", r.machine(1).Dials()-dials, i.Status)
	}
	r.isReady(t, 1, true)
	r.advance(t, 1, time.Second)
	r.expect(t, 1, v1alpha1.PhaseReady, "", contract.ReasonNodeReady)
}

func TestStoppingIsNoFailureOfAHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1) // the join waits for the Node, with an open connection
	ctx, cancel := context.WithCancel(t.Context())
	r.saving = cancel
	r.machine(1).Break()
	if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: key(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a reconcile during the shutdown: %v", err)
	}
	if i := r.get(t, 1); i.Status.Failures != 0 || len(r.events) != 0 {
		t.Errorf("status %+v, events %+v", i.Status, r.events)
	}
}

func TestAStaleCacheDoesNotRunAPhaseTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.stale = r.get(t, 1)
	r.stale.Finalizers = []string{contract.InstanceFinalizer}
	r.stale.ResourceVersion = "999"
	r.reconcile(t, 1)
	calls := r.machine(1).Calls()
	r.reconcile(t, 1)
	if again := r.machine(1).Calls(); len(again) != len(calls) || r.machine(1).Dials() != 1 {
		t.Errorf("calls %v, and then %v", calls, again)
	}
}

func TestWhatCouldNotBeSavedIsNotLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.saving = func() { r.broken["status"] = apierrors.NewServiceUnavailable("away") }
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err == nil {
		t.Fatal("the status could not be saved, but no error was returned")
	}
	if r.get(t, 1).Status.HostKey != "" {
		t.Fatal("the status was saved, so this test shows nothing")
	}
	r.saving, r.broken = nil, map[string]error{}
	r.reconcile(t, 1)
	i := r.get(t, 1)
	if i.Status.HostKey == "" || i.Status.Host.Address != "10.0.0.1" || r.machine(1).Dials() != 1 {
		t.Errorf("pin %q at %q after %d connections", i.Status.HostKey, i.Status.Host.Address, r.machine(1).Dials())
	}
}

func TestPausedMeansHandsOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(listed(1), listed(2)...)...)
	r.reconcile(t, 1) // the host is joining, and has a connection and a slot
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.reconcile(t, 1)
	if r.machine(1).Open() != 0 || r.parts.Slots.Held() != 0 {
		t.Errorf("a paused host keeps %d connections and %d slots", r.machine(1).Open(), r.parts.Slots.Held())
	}
	if i := r.get(t, 1); i.Status.Reason() != string(contract.ReasonPaused) ||
		condition(i, v1alpha1.ConditionReady) != "False Paused" ||
		condition(i, v1alpha1.ConditionProgressing) != "False Paused" {
		t.Errorf("status %+v", i.Status)
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = false })
	r.join(t, 1)

	r.join(t, 2)
	r.edit(t, 2, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.reconcile(t, 2)
	i := r.get(t, 2)
	if condition(i, v1alpha1.ConditionReady) != "True NodeReady" ||
		condition(i, v1alpha1.ConditionProgressing) != "False Paused" ||
		i.Status.Reason() != string(contract.ReasonPaused) {
		t.Errorf("a paused node that serves shows %+v", i.Status)
	}
	r.version = second
	writes := r.statusWrites
	r.reconcile(t, 2)
	if r.machine(2).Dials() != 1 || r.statusWrites != writes {
		t.Error("the operator worked on a paused host")
	}
}

func TestASlotThatIsFreeWakesWhoWaitsForIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(listed(1), listed(2)...)...)
	r.parts.Slots.SetLimit(1)
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	if i := r.get(t, 2); i.Status.Reason() != string(contract.ReasonWaitingForSlot) ||
		i.Status.Phase != v1alpha1.PhaseConnecting {
		t.Fatalf("status %+v", i.Status)
	}
	r.machine(1).Break()
	r.reconcile(t, 1) // after the connection is lost, the host is dialled again and keeps its slot
	if len(r.woken) != 0 {
		t.Error("a host was triggered while no slot was free")
	}
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.reconcile(t, 1)
	if len(r.woken) != 1 || (<-r.woken).Object.GetName() != "10.0.0.2" {
		t.Error("the waiting host was not triggered")
	}
}

// The node becomes Ready without help while its host is in the queue for a join, or has a join slot.
func TestAHostThatRecoversLeavesItsSlotToOthers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		waits, goesOn func(r *rig)
		reason        contract.Reason
	}{
		"in the queue": {
			func(r *rig) { r.parts.Slots.Acquire(types.NamespacedName{Name: "another"}) }, func(r *rig) { r.parts.Slots.Release(types.NamespacedName{Name: "another"}) },
			contract.ReasonWaitingForSlot,
		},
		"in a slot": {
			func(r *rig) { r.broken["desired"] = contract.NewProblem(contract.ReasonPayloadMissing, "none") },
			func(r *rig) { delete(r.broken, "desired") }, contract.ReasonPayloadMissing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, append(listed(1), listed(2)...)...)
			r.join(t, 1)
			r.parts.Slots.SetLimit(1)
			r.isReady(t, 1, false)
			test.waits(r)
			r.advance(t, 1, 11*time.Minute)
			if i := r.get(t, 1); i.Status.Reason() != string(test.reason) || r.machine(1).Open() != 1 {
				t.Fatalf("%d connections, status %+v", r.machine(1).Open(), i.Status)
			}
			r.isReady(t, 1, true)
			test.goesOn(r)
			r.reconcile(t, 1)
			if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseReady || r.machine(1).Open() != 0 {
				t.Errorf("%d connections to a host in service, status %+v", r.machine(1).Open(), i.Status)
			}
			r.reconcile(t, 2)
			if i := r.get(t, 2); i.Status.Reason() == string(contract.ReasonWaitingForSlot) {
				t.Errorf("%d slots are held, and the next host gets none", r.parts.Slots.Held())
			}
		})
	}
}

func TestAHostThatVanishedFromTheClusterJoinsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-a"}}
	if err := r.api.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseAdopting ||
		condition(i, v1alpha1.ConditionReady) != "False NodePending" {
		t.Errorf("status %+v", i.Status)
	}
	asked := contract.BootstrapRequest{}
	if _, err := r.machine(1).Request(contract.VerbBootstrap, &asked); err != nil || !asked.Register {
		t.Errorf("kubelet was not requested to register: %v", err)
	}
}

// The bootstrap creates a new key for the daemon, and later phases of the join get a certificate for this key. If the
// node becomes Ready in between, with kubelet's old certificate, the join must still continue.
func TestAJoinThatGaveTheHostACredentialIsNotBrokenOff(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(*rig, *testing.T){
		"by a node that is Ready": func(*rig, *testing.T) {},
		"by another host that has the only slot": func(r *rig, t *testing.T) {
			i := r.get(t, 2)
			i.Status.Slot = &v1alpha1.Slot{Since: new(metav1.NewTime(r.clock))}
			if err := r.api.Status().Update(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		},
		"by another operator that takes over": func(r *rig, t *testing.T) { r.restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, append(listed(1), listed(2)...)...)
			r.join(t, 1)
			r.join(t, 2)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "win-a"}}
			if err := r.api.Delete(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			r.reconcile(t, 1)
			before := r.calls(1, contract.VerbHandover)
			r.register(t, 1, "")
			interrupt(r, t)
			r.reconcile(t, 1)
			r.sign(t)
			r.reconcile(t, 1)
			if made := r.calls(1, contract.VerbHandover) - before; made != 1 {
				i := r.get(t, 1)
				t.Errorf("the daemon got %d certificates; status %s %s %s", made, i.Status.Phase,
					i.Status.Reason(), i.Status.Message())
			}
		})
	}
}

// Users must see within seconds which phase of a join is running. Phases that last less than a second are not written.
func TestAStatusShowsAPhaseThatLastsAndNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, listed(1)...)
		shown := v1alpha1.Phase("")
		r.slow = hosttestUnreachable
		r.reaches = func(string) bool {
			time.Sleep(showAfter + time.Second)
			shown = r.get(t, 1).Status.Phase
			return true
		}
		r.reconcile(t, 1)
		if shown != v1alpha1.PhaseConnecting {
			t.Errorf("during a dial that lasts for seconds, the status shows phase %q", shown)
		}
		slow := r.statusWrites
		r = newRig(t, listed(1)...)
		r.reconcile(t, 1)
		if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseAdopting || r.statusWrites != 2 || slow != 3 {
			t.Errorf("in phase %s, after %d writes, and %d with a phase that lasts; want 2 and 3", i.Status.Phase,
				r.statusWrites, slow)
		}
	})
}
