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

// restores plays a restore of etcd, which sets every object back to an earlier version, under the same UID.
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
	if got := r.get(t, 1).Status; got.Reason != string(contract.ReasonNodeNotReady) {
		t.Errorf("the status says %s: %s", got.Reason, got.Message)
	}
}

// Nothing else of the instance changes, and its node serves: it would keep a place from all others.
func TestAPlaceThatARestoreOfEtcdBringsBackIsGivenBack(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	was := r.get(t, 1)
	was.Status.Slot = &v1alpha1.Slot{Since: new(journey.Seconds(r.clock))}
	r.restores(t, was)
	r.clock = r.clock.Add(2 * longestLag)
	r.reconcile(t, 1)
	if slot := r.get(t, 1).Status.Slot; slot != nil {
		t.Errorf("it keeps %+v", slot)
	}
}

// A clock that was wrong for a while must not hold a host for years.
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
			t.Fatalf("it is looked at again in %s", result.RequeueAfter)
		}
		r.clock = r.clock.Add(6 * time.Minute)
	}
	if r.machine(1).Dials() == dials {
		t.Error("the host is not tried again")
	}
}

// Whatever is reckoned with: what only tells users when something was need not be put right, nor what observed.Log is
// asked about.
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
	status = status.DeepCopy() // so that each has its own times
	boundTimes(status, now)
	if status.KeyRefusal != nil {
		t.Error("a refusal at a time that nobody knows counts as one of now")
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
		t.Errorf("only %d times were looked at", bounded)
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
	if got := r.get(t, 1).Status; got.Slot != nil || got.Reason != string(contract.ReasonPrivateKeyMissing) {
		t.Errorf("place %+v, reason %s", got.Slot, got.Reason)
	}
	r.noKey = nil
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Errorf("with the key it stays: %+v", r.get(t, 1).Status)
	}
}

// The key that it began with is gone, and so is the connection.
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
			t.Errorf("place %+v, status %+v", i.Status.Slot, i.Status)
		}
	}
	r.noKey, blocked = nil, false
	r.advance(t, 1, time.Minute)
	r.advance(t, 1, time.Minute)
	if r.exists(t, 1) {
		t.Errorf("with the key it stays: %+v", r.get(t, 1).Status)
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
					!strings.Contains(i.Status.Message, "hands off") {
					t.Fatalf("place %+v, status %+v", i.Status.Slot, i.Status)
				}
				r.clock = policy.NextAttempt(i)
			}
			// It is cleaned, so what the next request may not meet is asked for again, and the host is left alone.
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
				t.Errorf("it stays: %+v", r.get(t, 1).Status)
			}
		})
	}
}

// A daemon that is dead does not reboot its host, and its node goes on serving.
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
		t.Errorf("place %+v, unschedulable %v, annotations %v", r.get(t, 1).Status.Slot,
			node.Spec.Unschedulable, node.Annotations)
	}
}
