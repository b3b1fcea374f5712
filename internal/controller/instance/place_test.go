package instance

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
)

// The operator ended after it wrote the list of slots, and before it wrote the slot to the instance's status.
func TestAnInstanceGoesOnWithThePlaceThatItWasGiven(t *testing.T) {
	t.Parallel()
	r := updating(t)
	if _, err := r.Reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.rollout.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	if i := r.get(t, 1); i.Status.Slot == nil || i.Status.HasSlot() {
		t.Fatalf("the instance got no slot: %+v", i.Status.Slot)
	}
	r.restart(t)
	r.reconcile(t, 2)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("the instance waits for its own slot: %+v", i.Status)
	}
	if r.get(t, 2).Status.HasSlot() {
		t.Error("two nodes have a slot")
	}
}

// If a request for a slot is no longer needed, it must be withdrawn. Otherwise, its slot would be blocked for all other
// nodes.
func TestARequestThatIsNotMadeAgainIsWithdrawn(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	if i := r.get(t, 2); i.Status.Slot == nil || i.Status.HasSlot() {
		t.Fatalf("the second host does not wait: %+v", i.Status.Slot)
	}
	r.version = first
	r.reconcile(t, 2)
	if slot := r.get(t, 2).Status.Slot; slot != nil {
		t.Errorf("the request still exists: %+v", slot)
	}
}

// A user deletes the list of slots, as the fix of W716 says. A disruption that is in progress must continue.
func TestAListOfPlacesThatIsDeletedIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.reconcile(t, 1)
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.SlotsConfigMap}}
	if err := r.api.Delete(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t, 1)
	if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(list), list); err != nil || !r.get(t, 1).Status.HasSlot() {
		t.Errorf("the list is %v, %v; status %+v", list.Data, err, r.get(t, 1).Status)
	}
	r.reconcile(t, 2)
	if r.get(t, 2).Status.HasSlot() {
		t.Error("two nodes have a slot")
	}
}

// immutable is an API server that refuses changes of the list of slots.
type immutable struct{ client.Client }

func (c immutable) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	if o.GetName() == contract.SlotsConfigMap {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), o.GetName(), nil)
	}
	return c.Client.Update(ctx, o, options...)
}

func TestAListOfPlacesThatCanNotBeWrittenIsTold(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, r *rig){
		"an upgrade": func(*testing.T, *rig) {},
		"a removal":  func(t *testing.T, r *rig) { t.Helper(); r.remove(t, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := updating(t)
			if err := r.api.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
				Name: contract.SlotsConfigMap}}); err != nil {
				t.Fatal(err)
			}
			change(t, r)
			var err error
			if r.rollout, err = rollout.New(rollout.Options{Cached: r.api, Live: r.api, Writer: immutable{r.api},
				Namespace: namespace, Now: r.now}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err != nil {
				t.Error(err)
			}
			i := r.get(t, 1)
			if i.Status.Reason() != "SlotsUnwritable" || !strings.Contains(i.Status.Message(), contract.SlotsConfigMap) ||
				i.Status.HasSlot() {
				t.Errorf("status %+v", i.Status)
			}
		})
	}
}
