package settings

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// operatorCondition returns OLM's object, which already has a condition that another client wrote.
func operatorCondition() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"deployments": []any{"operator"},
		"conditions": []any{map[string]any{
			"type": "Other", "status": "True", "reason": "Theirs", "message": "",
			"lastTransitionTime": "2026-01-01T00:00:00Z",
		}},
	}}}
	o.SetGroupVersionKind(operatorConditionKind())
	o.SetNamespace("ns")
	o.SetName("wmco.v1")
	return o
}

// said returns the conditions that are in OLM's object.
func said(t *testing.T, r *rig) []metav1.Condition {
	t.Helper()
	o := operatorCondition()
	if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	var known struct {
		Spec struct {
			Conditions  []metav1.Condition `json:"conditions"`
			Deployments []string           `json:"deployments"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &known); err != nil {
		t.Fatal(err)
	}
	if len(known.Spec.Deployments) != 1 || meta.FindStatusCondition(known.Spec.Conditions, "Other") == nil {
		t.Errorf("other clients' conditions were removed: %v", o.Object)
	}
	return known.Spec.Conditions
}

func TestA20_OLMIsToldWhetherAnUpgradeIsSafe(t *testing.T) {
	t.Parallel()
	instance := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "10.0.0.1"}}
	r := newRig(t, operatorCondition())
	r.OperatorCondition = "wmco.v1"
	check := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		if c := meta.FindStatusCondition(said(t, r), v1alpha1.ConditionUpgradeable); c == nil || c.Status != status ||
			c.Reason != reason || c.LastTransitionTime.IsZero() {
			t.Errorf("the condition is %+v, want %s %s", c, status, reason)
		}
	}
	r.reconcile(t)
	r.reconcile(t)
	check(metav1.ConditionTrue, "upgradeIsSafe")
	version := func() string {
		o := operatorCondition()
		if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		return o.GetResourceVersion()
	}
	before := version()
	r.reconcile(t)
	if version() != before {
		t.Error("the object is written without a change")
	}
	if err := r.api.Create(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	check(metav1.ConditionFalse, "upgradeIsNotSafe")
	if err := r.api.Delete(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	check(metav1.ConditionTrue, "upgradeIsSafe")
	if result, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter != lookAgain {
		t.Errorf("reconciled again after %s, %v", result.RequeueAfter, err)
	}
}

// unreadable is a reader that returns an error when an OperatorCondition is read.
type unreadable struct {
	client.Reader
	err error
}

func (u unreadable) Get(ctx context.Context, key types.NamespacedName, o client.Object,
	opts ...client.GetOption) error {
	if _, ok := o.(*unstructured.Unstructured); ok {
		return u.err
	}
	return u.Reader.Get(ctx, key, o, opts...)
}

func TestOLMsAbsenceIsSaidAndKeepsNothingElseBack(t *testing.T) {
	t.Parallel()
	conditions := schema.GroupResource{Group: "operators.coreos.com", Resource: "operatorconditions"}
	for name, test := range map[string]struct {
		configured string
		err        error
		fails      bool
	}{
		"without OLM":             {"", errors.New("asked for nothing"), false},
		"OLM is away":             {"wmco.v1", &meta.NoKindMatchError{}, true},
		"its object is gone":      {"wmco.v1", apierrors.NewNotFound(conditions, "wmco.v1"), true},
		"it gives no right to it": {"wmco.v1", apierrors.NewForbidden(conditions, "wmco.v1", errors.New("no")), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.OperatorCondition, r.live = test.configured, unreadable{r.api, test.err}
			r.reconcile(t) // creates the WindowsMachineConfig
			if _, err := r.Reconcile(t.Context(), ctrl.Request{}); (err != nil) != test.fails {
				t.Errorf("got %v", err)
			}
			config := &v1alpha1.WindowsMachineConfig{}
			if err := r.api.Get(t.Context(), types.NamespacedName{Name: "cluster"}, config); err != nil {
				t.Fatal(err)
			}
			if !meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.ConditionUpgradeable) {
				t.Errorf("the status is %+v", config.Status)
			}
		})
	}
}
