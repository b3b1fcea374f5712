package instance

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/rollout"
)

// gives has another operator give a host a place, as far as it may.
func (r *rig) gives(t *testing.T, n int) bool {
	t.Helper()
	gate, err := rollout.New(rollout.Options{Cached: r.api, Live: r.api, Writer: r.api, Namespace: namespace,
		Now: r.now})
	if err != nil {
		t.Fatal(err)
	}
	i := r.get(t, n)
	granted, err := gate.Acquire(t.Context(), rollout.Request{Name: string(i.UID), Node: i.Status.NodeName,
		Decide: func(look rollout.Snapshot) bool { return look.MayDisrupt(i.Status.NodeName).Allowed }})
	if err != nil {
		t.Fatal(err)
	}
	return granted
}

// An operator that stands still between the list and the status.
func TestAPlaceThatWentToAnotherIsNotUsed(t *testing.T) {
	t.Parallel()
	r := updating(t)
	r.saving = func() {
		list := client.ObjectKey{Namespace: namespace, Name: contract.PlacesConfigMap}
		if err := r.api.Get(t.Context(), list, &corev1.ConfigMap{}); err != nil {
			return // it has yet to be given the place
		}
		r.saving = nil
		r.clock = r.clock.Add(3 * time.Minute)
		if !r.gives(t, 2) {
			t.Error("a place that nobody uses is stuck")
		}
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err != nil {
		t.Fatal(err)
	}
	if r.saving != nil {
		t.Fatal("it was given no place")
	}
	if i := r.get(t, 1); i.Status.Disruption != nil || r.machine(1).Dials() != 1 {
		t.Errorf("two nodes go ahead: %+v", i.Status)
	}
}

// The operator before it ended between the list and the status.
func TestAnInstanceGoesOnWithThePlaceThatItWasGiven(t *testing.T) {
	t.Parallel()
	r := updating(t)
	if !r.gives(t, 1) {
		t.Fatal("there is no place")
	}
	r.restart(t)
	r.reconcile(t, 2)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseConfirming {
		t.Errorf("it waits for its own place: %+v", i.Status)
	}
	if i := r.get(t, 2); i.Status.Disruption != nil {
		t.Error("two nodes go ahead")
	}
}

// immutable is an API server whose list of places somebody has made so.
type immutable struct{ client.Client }

func (c immutable) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	if o.GetName() == contract.PlacesConfigMap {
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
				Name: contract.PlacesConfigMap}}); err != nil {
				t.Fatal(err)
			}
			change(t, r)
			gate, err := rollout.New(rollout.Options{Cached: r.api, Live: r.api, Writer: immutable{r.api},
				Namespace: namespace, Now: r.now})
			if err != nil {
				t.Fatal(err)
			}
			r.gate = gate
			if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err != nil {
				t.Error(err)
			}
			i := r.get(t, 1)
			if i.Status.Reason != "PlacesUnwritable" || !strings.Contains(i.Status.Message, contract.PlacesConfigMap) ||
				i.Status.Disruption != nil {
				t.Errorf("status %+v", i.Status)
			}
		})
	}
}

// Two hosts whose reboot can't drain their nodes would take turns before an upgrade that failed once.
func TestFailuresOfEverythingCountForTheOrder(t *testing.T) {
	t.Parallel()
	i := &v1alpha1.WindowsInstance{}
	i.Status.Failures = 1
	i.Status.Update = &v1alpha1.Update{Progress: v1alpha1.Progress{Tries: 2}}
	i.Status.Reboot = &v1alpha1.Reboot{Progress: v1alpha1.Progress{Tries: 4}}
	if got := order(i, &corev1.Node{}).Failures; got != 7 {
		t.Errorf("%d failures count, want 7", got)
	}
}
