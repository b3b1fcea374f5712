package machine

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
)

// mayGo reports whether a different node can get a slot now.
func (y *yard) mayGo(name string) bool {
	y.t.Helper()
	i := y.instance(name)
	i.Status.Slot = &v1alpha1.Slot{}
	if err := y.api.Status().Update(y.t.Context(), i); err != nil {
		y.t.Fatal(err)
	}
	has, err := y.options.Rollout.HasSlot(y.t.Context(), i)
	if err != nil {
		y.t.Fatal(err)
	}
	i = y.instance(name)
	i.Status.Slot = nil
	if err := y.api.Status().Update(y.t.Context(), i); err != nil {
		y.t.Fatal(err)
	}
	return has
}

// immutable is an API server that refuses changes to the list of slots.
type immutable struct{ client.Client }

func (c immutable) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	if o.GetName() == contract.SlotsConfigMap {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), o.GetName(), nil)
	}
	return c.Client.Create(ctx, o, options...)
}

func TestAListOfPlacesThatCanNotBeWrittenIsToldOfMachines(t *testing.T) {
	t.Parallel()
	y := newYard(t, 3)
	view := NewView(y.api)
	var reader client.Reader = y.api
	view.cached.Store(&reader)
	var err error
	if y.options.Rollout, err = rollout.New(rollout.Options{Cached: y.api, Live: y.api, Writer: immutable{y.api}, Sets: view,
		Namespace: namespace}); err != nil {
		t.Fatal(err)
	}
	y.rotate("b")
	y.refuses("m0")
	if _, err = y.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Error(err)
	}
	y.want("m0", "m1", "m2")
	if len(y.said) != 1 || !strings.Contains(y.said[0], "SlotsUnwritable") {
		t.Errorf("the events are %q", y.said)
	}
}

// lateDeletion is how long after an unanswered request the API server may still delete a Machine.
const lateDeletion = 2 * time.Minute

// unresponsive makes the deletion of m0 time out.
func unresponsive(t *testing.T) *yard {
	t.Helper()
	y := newYard(t, 3)
	y.rotate("b")
	y.refuses("m0")
	y.denied = apierrors.NewTimeoutError("away", 1)
	if _, err := y.Reconcile(t.Context(), ctrl.Request{}); err == nil {
		t.Fatal("the deletion is not retried")
	}
	y.denied = nil
	return y
}

func TestAMachineKeepsItsPlaceWhileItsDeletionMayArrive(t *testing.T) {
	t.Parallel()
	y := unresponsive(t)
	if y.mayGo("m1") {
		t.Error("another node gets a slot, although the Machine may be deleted")
	}
	y.restart()
	y.reconcile() // a new operator reconciles as soon as it starts
	y.want("m1", "m2")
	if y.mayGo("m1") {
		t.Error("another node gets a slot, although the budget is one")
	}
}

func TestAMachineThatIsNotToGoAnyMoreGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(y *yard){
		"its host accepts the key": func(y *yard) {
			i := y.instance("m0")
			i.Status.KeyRefusal, i.Status.PublicKeyHash = nil, "b"
			if err := y.api.Status().Update(y.t.Context(), i); err != nil {
				y.t.Fatal(err)
			}
		},
		"it is ignored": func(y *yard) {
			i := y.instance("m0")
			i.Spec.Paused = true
			if err := y.api.Update(y.t.Context(), i); err != nil {
				y.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := unresponsive(t)
			change(y)
			y.reconcile()
			y.want("m0", "m1", "m2")
			if y.mayGo("m1") {
				t.Error("another node gets a slot, although the deletion may still take effect")
			}
			y.clock = y.clock.Add(lateDeletion)
			y.reconcile()
			y.want("m0", "m1", "m2")
			if !y.mayGo("m1") {
				t.Error("the slot is free, but no other node gets it")
			}
		})
	}
}

// The refusal is too old, so the operator tries the key on the host again first.
func TestAMachineWhoseHostIsAskedAgainKeepsItsPlaceWhileItsDeletionMayArrive(t *testing.T) {
	t.Parallel()
	y := unresponsive(t)
	y.clock = y.clock.Add(31 * time.Second)
	y.reconcile()
	if y.mayGo("m1") {
		t.Error("another node gets a slot, although the deletion may still take effect")
	}
}

// Without a key, the operator doesn't know which Machines to replace. Slots of Machines must still be released.
func TestAPlaceOfAMachineIsGivenBackWithoutAKey(t *testing.T) {
	t.Parallel()
	y := unresponsive(t)
	y.cached.err = contract.NewProblem(contract.ReasonPrivateKeyMissing, "gone")
	result, err := y.Reconcile(t.Context(), ctrl.Request{})
	if err != nil || result.RequeueAfter == 0 || y.mayGo("m1") {
		t.Errorf("%+v, %v; or the slot was released at once", result, err)
	}
	y.clock = y.clock.Add(lateDeletion)
	if _, err = y.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	if y.want("m0", "m1", "m2"); !y.mayGo("m1") {
		t.Error("the slot is free, but no other node gets it")
	}
}

// restored simulates a restore from a backup, which does not restore statuses: it deletes the statuses of instances.
// Their Machines still contain the names of the Nodes.
func (y *yard) restored(names ...string) {
	y.t.Helper()
	for _, name := range names {
		i, m := y.instance(name), &machinev1beta1.Machine{}
		i.Status = v1alpha1.WindowsInstanceStatus{}
		if err := y.api.Status().Update(y.t.Context(), i); err != nil {
			y.t.Fatal(err)
		}
		if err := y.api.Get(y.t.Context(), types.NamespacedName{Namespace: contract.MachineAPINamespace, Name: name},
			m); err != nil {
			y.t.Fatal(err)
		}
		m.Status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: name}
		if err := y.api.Status().Update(y.t.Context(), m); err != nil {
			y.t.Fatal(err)
		}
	}
}

// closed sets a maintenance window that opens only after some days.
func (y *yard) closed() {
	y.t.Helper()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * 6",
		Duration: metav1.Duration{Duration: time.Hour}}}
	y.create(config)
}

// After a restore, only the Machine shows that its host is a node. The node's pods run, so the replacement of this
// Machine needs a slot.
func TestA18_AMachineWhoseInstanceLostItsStatusIsReplacedLikeAnyWhoseNodeServes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(y *yard)
		left   []string
		says   contract.Reason
	}{
		"one after the other": {func(*yard) {}, []string{"m1", "m2"}, contract.ReasonOwnerDegraded},
		"in no closed window": {(*yard).closed, []string{"m0", "m1", "m2"}, contract.ReasonMaintenanceWindowClosed},
		"only if enough others serve": {func(y *yard) {
			y.changeSet(func(s *machinev1beta1.MachineSet) {
				s.Annotations = map[string]string{contract.MinAvailableAnnotation: "100%"}
			})
		}, []string{"m0", "m1", "m2"}, contract.ReasonOwnerDegraded},
		"soon if its node is out of service": {func(y *yard) {
			y.closed()
			y.nodeIs("m1", corev1.ConditionFalse)
		}, []string{"m0", "m2"}, contract.ReasonMaintenanceWindowClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, 3)
			y.restored("m0", "m1", "m2")
			y.rotate("b")
			y.refuses("m0", "m1", "m2")
			test.change(y)
			for range 3 {
				y.reconcile()
			}
			y.want(test.left...)
			if !slices.ContainsFunc(y.said, func(s string) bool { return strings.Contains(s, test.says.Code()) }) {
				t.Errorf("the events are %q, want %s", y.said, test.says.Code())
			}
		})
	}
}

func TestAMachineWhoseInstanceLostItsStatusKeepsItsPlaceWhileItsDeletionMayArrive(t *testing.T) {
	t.Parallel()
	y := newYard(t, 3)
	y.restored("m0")
	y.rotate("b")
	y.refuses("m0")
	y.denied = apierrors.NewTimeoutError("away", 1)
	if _, err := y.Reconcile(t.Context(), ctrl.Request{}); err == nil {
		t.Fatal("the deletion is not retried")
	}
	if y.mayGo("m1") {
		t.Error("another node gets a slot, although the Machine may be deleted")
	}
}
