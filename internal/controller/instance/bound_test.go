package instance

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// restores simulates a restore of etcd. Afterwards, the object has an earlier resource version and the same UID.
func (r *rig) restores(t *testing.T, was *v1alpha1.WindowsInstance) {
	t.Helper()
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
	now := r.get(t, 1).ResourceVersion
	if order, err := resourceversion.CompareResourceVersion(now, was.ResourceVersion); err != nil || order >= 0 {
		t.Fatalf("version %s after %s is no restore", r.get(t, 1).ResourceVersion, was.ResourceVersion)
	}
}

func TestAStatusIsWrittenAgainAfterARestoreOfEtcd(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.restores(t, r.get(t, 1))
	r.changes(t, 1, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
	for range 6 {
		r.clock = r.clock.Add(30 * time.Second)
		r.reconcile(t, 1)
	}
	if got := r.get(t, 1).Status; got.Reason() != string(contract.ReasonNodeNotReady) {
		t.Errorf("the status is %s: %s", got.Reason(), got.Message())
	}
}

// A restore of etcd can bring back the slot of a node that is in service. The operator must release this slot.
// Otherwise, the slot would block all other nodes.
func TestAPlaceThatARestoreOfEtcdBringsBackIsGivenBack(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	was := r.get(t, 1)
	was.Status.Slot = &v1alpha1.Slot{Since: new(journey.Seconds(r.clock))}
	r.restores(t, was)
	r.clock = r.clock.Add(2 * longestLag)
	r.reconcile(t, 1)
	if slot := r.get(t, 1).Status.Slot; slot != nil {
		t.Errorf("the instance keeps the slot %+v", slot)
	}
}

// If a clock was wrong for a while, hosts must not wait for years because of times that it wrote.
func TestTimesThatAWrongClockWroteAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.reconcile(t, 1)
	far := metav1.NewTime(r.clock.Add(10 * 365 * 24 * time.Hour))
	i := r.get(t, 1)
	i.Status.Phase, i.Status.Failures = v1alpha1.PhaseConnecting, 1
	i.Status.Phases = []v1alpha1.PhaseTime{{Phase: v1alpha1.PhaseConnecting, StartTime: journey.Micros(r.clock),
		Milliseconds: new(far.Sub(r.clock).Milliseconds())}}
	if err := r.api.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	r.restart(t)
	dials := r.machine(1).Dials()
	for range 3 {
		if result := r.reconcile(t, 1); result.RequeueAfter > time.Hour {
			t.Fatalf("the instance is reconciled again only after %s", result.RequeueAfter)
		}
		r.clock = r.clock.Add(6 * time.Minute)
	}
	if r.machine(1).Dials() == dials {
		t.Error("the operator did not connect to the host again")
	}
}

// Every time in the status that a decision depends on must be bounded. Times that are only shown to users need not be.
func TestEveryTimeThatIsReckonedWithIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	far := metav1.NewTime(now.Add(10 * 365 * 24 * time.Hour))
	status := &v1alpha1.WindowsInstanceStatus{
		Phases:     []v1alpha1.PhaseTime{{StartTime: metav1.NewMicroTime(far.Time)}},
		KeyRefusal: &v1alpha1.KeyRefusal{Since: far, Time: far},
		Slot:       &v1alpha1.Slot{Since: &far},
		Activity:   &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, NextTime: &far},
	}
	status = status.DeepCopy() // so that each field has its own copy of the time
	boundTimes(status, now)
	if status.KeyRefusal != nil {
		t.Error("a key refusal that is dated in the future is kept")
	}
	var bounded int
	var check func(path string, value reflect.Value)
	check = func(path string, value reflect.Value) {
		switch one := value.Interface().(type) {
		case metav1.Time:
			if bounded++; one.After(now.Add(time.Hour)) {
				t.Errorf("%s is %s", path, one)
			}
			return
		case metav1.MicroTime:
			if bounded++; one.After(now.Add(time.Hour)) {
				t.Errorf("%s is %s", path, one)
			}
			return
		}
		switch value.Kind() {
		case reflect.Pointer:
			if !value.IsNil() {
				check(path, value.Elem())
			}
		case reflect.Struct:
			for i := range value.NumField() {
				check(path+"."+value.Type().Field(i).Name, value.Field(i))
			}
		case reflect.Slice:
			for i := range value.Len() {
				check(path, value.Index(i))
			}
		}
	}
	if check("status", reflect.ValueOf(status)); bounded < 4 {
		t.Errorf("checked only %d times", bounded)
	}
}

// A removal that waits for a missing key must not use a slot, because the key may never be added.
func TestARemovalThatWaitsForTheKeyTakesNoPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	r.join(t, 1)
	r.noKey = contract.NewProblem(contract.ReasonPrivateKeyMissing, "there is none")
	r.remove(t, 1)
	r.reconcile(t, 1)
	if got := r.get(t, 1).Status; got.Slot != nil || got.Reason() != string(contract.ReasonPrivateKeyMissing) {
		t.Errorf("slot %+v, reason %s", got.Slot, got.Reason())
	}
	r.noKey = nil
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Errorf("the key is back, but the instance still exists: %+v", r.get(t, 1).Status)
	}
}

// During a removal, the key is deleted and the connection is lost. The removal must then release its slot.
func TestARemovalThatLosesTheKeyGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	r, blocked := newRig(t, listed(1)...), true
	r.join(t, 1)
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.remove(t, 1)
	r.reconcile(t, 1)
	if i := r.expect(t, 1, v1alpha1.PhaseRemoving, "", contract.ReasonDraining); !i.Status.HasSlot() {
		t.Fatalf("status %+v", i.Status)
	}
	r.restart(t)
	r.noKey = contract.NewProblem(contract.ReasonPrivateKeyMissing, "there is none")
	for range 2 {
		r.advance(t, 1, time.Minute)
		i := r.expect(t, 1, v1alpha1.PhaseRemoving, "", contract.ReasonPrivateKeyMissing)
		if i.Status.HasSlot() || !r.node(t, 1).Spec.Unschedulable {
			t.Errorf("slot %+v, status %+v", i.Status.Slot, i.Status)
		}
	}
	r.noKey, blocked = nil, false
	r.advance(t, 1, time.Minute)
	r.advance(t, 1, time.Minute)
	if r.exists(t, 1) {
		t.Errorf("the key is back, but the instance still exists: %+v", r.get(t, 1).Status)
	}
}

func TestARemovalThatTheClusterRefusesGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"delete", "revoke"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, listed(1)...)
			r.join(t, 1)
			r.broken[what] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("hands off"))
			r.remove(t, 1)
			for n := range 3 {
				r.reconcile(t, 1)
				i := r.expect(t, 1, v1alpha1.PhaseRemoving, "", contract.ReasonAPICallFailed)
				if i.Status.HasSlot() || i.Status.Failures != int32(n+1) ||
					!strings.Contains(i.Status.Message(), "hands off") {
					t.Fatalf("slot %+v, status %+v", i.Status.Slot, i.Status)
				}
				r.clock = policy.NextAttempt(i)
			}
			// The host is already cleaned. If a later request to the API server fails for a moment, only this request
			// must be repeated. The host must not be cleaned a second time.
			busy := apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
			busy.ErrStatus.Reason = ""
			r.broken[what] = busy
			r.reconcile(t, 1)
			cleaned := r.calls(1, contract.VerbCleanup)
			for range 3 {
				r.advance(t, 1, 3*time.Second)
			}
			if i := r.get(t, 1); i.Status.Failures != 3 || r.calls(1, contract.VerbCleanup) != cleaned {
				t.Fatalf("cleaned %d times, then %d, status %+v", cleaned, r.calls(1, contract.VerbCleanup), i.Status)
			}
			delete(r.broken, what)
			r.advance(t, 1, 3*time.Second)
			if r.exists(t, 1) {
				t.Errorf("the instance still exists: %+v", r.get(t, 1).Status)
			}
		})
	}
}

// A dead daemon does not execute a reboot that was requested. Its node is still in service, so the slot must be
// released.
func TestAnApprovedRebootThatTheDaemonDoesNotDoGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepSwitching, contract.ReasonRebooting)
	r.advance(t, 1, 21*time.Minute)
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonDaemonUnresponsive)
	node := r.node(t, 1)
	if r.get(t, 1).Status.HasSlot() || node.Spec.Unschedulable ||
		node.Annotations[contract.RebootApprovedAnnotation] != "" {
		t.Errorf("slot %+v, unschedulable %v, annotations %v", r.get(t, 1).Status.Slot,
			node.Spec.Unschedulable, node.Annotations)
	}
}
