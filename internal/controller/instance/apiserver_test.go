package instance

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	labcluster "github.com/windows-nodes/wmco/lab/cluster"
	labplane "github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/scheme"
)

// This test needs a real API server, because fake clients don't refuse a patch with the UID of a different object.
func TestAStatusIsNotWrittenToAnInstanceThatTookTheName(t *testing.T) {
	t.Parallel()
	lab := labplane.Start(t, labcluster.Options{})
	if _, err := labcluster.InstallCRDs(t.Context(), lab.Admin(),
		labcluster.CRDOptions{Paths: []string{filepath.Join("..", "..", "..", "config", "crd")}}); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(lab.Admin(), client.Options{Scheme: scheme.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	present := &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "10.0.0.1"},
		Spec:       v1alpha1.WindowsInstanceSpec{Address: "10.0.0.1", Username: "a"},
	}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, present} {
		if err = api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for name, test := range map[string]struct {
		uid   types.UID
		saved bool
	}{"its own": {present.UID, true}, "that of the one before": {"00000000-0000-0000-0000-000000000000", false}} {
		seen := present.DeepCopy()
		seen.UID = test.uid
		c := newReconciliation(&Reconciler{client: api, now: time.Now}, seen, nil, &memory{})
		seen.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing,
			Status: metav1.ConditionTrue, Reason: "InProgress", Message: name,
			LastTransitionTime: metav1.Now()}}
		if err = c.record.save(t.Context()); (err == nil) != test.saved {
			t.Errorf("saving with %s UID: %v", name, err)
		}
		now := &v1alpha1.WindowsInstance{}
		if err = api.Get(t.Context(), client.ObjectKeyFromObject(present), now); err != nil {
			t.Fatal(err)
		}
		if (now.Status.Message() == name) != test.saved {
			t.Errorf("saving with %s UID left the message %q", name, now.Status.Message())
		}
	}
	t.Run("A51 with texts that a host chose", func(t *testing.T) {
		if err = api.Get(t.Context(), client.ObjectKeyFromObject(present), present); err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat("é", 100_000)
		c := newReconciliation(&Reconciler{client: api, now: time.Now}, present, nil, &memory{})
		present.Status = v1alpha1.WindowsInstanceStatus{
			Revision: long, HeldRevision: long,
			Activity: &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Message: long, Revision: "1",
				BootID: long, Step: v1alpha1.StepStaging, Since: metav1.Now()},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionUpdateFailed, Status: metav1.ConditionTrue,
				Reason: "UpdateFailed", Message: long, LastTransitionTime: metav1.Now()}},
		}
		if err = c.record.save(t.Context()); err != nil {
			t.Fatalf("%.500v", err)
		}
		now := &v1alpha1.WindowsInstance{}
		if err = api.Get(t.Context(), client.ObjectKeyFromObject(present), now); err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(now.Status); err != nil || len(text) > 40_000 || !utf8.Valid(text) ||
			strings.ContainsRune(string(text), utf8.RuneError) {
			t.Errorf("the status has %d bytes: %v", len(text), err)
		}
		now.Status.Revision = long
		if err = api.Status().Update(t.Context(), now); !apierrors.IsInvalid(err) {
			t.Errorf("the API server accepts an annotation of any length: %v", err)
		}
	})
}
