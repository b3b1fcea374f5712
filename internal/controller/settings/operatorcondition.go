package settings

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// eventOperatorCondition is the reason of the event about a failed write of the OperatorCondition. OLM reads from this
// object whether an upgrade is safe.
const eventOperatorCondition = "OperatorConditionError"

// lookAgain is how often the operator reads the OperatorCondition, which it may not watch.
const lookAgain = 10 * time.Minute

// operatorConditionKind returns OLM's kind OperatorCondition. This module doesn't import its Go types.
func operatorConditionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v2", Kind: "OperatorCondition"}
}

// tellOLM copies the condition Upgradeable to the OperatorCondition that OLM created for this operator. OLM lets the
// operator write no other OperatorCondition.
func (r *Reconciler) tellOLM(ctx context.Context, status v1alpha1.WindowsMachineConfigStatus) error {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUpgradeable)
	if r.OperatorCondition == "" || condition == nil {
		return nil
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(operatorConditionKind())
	object.SetNamespace(r.Namespace)
	object.SetName(r.OperatorCondition)
	err := r.live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: r.OperatorCondition}, object)
	if err == nil {
		err = r.saveCondition(ctx, object, *condition)
	}
	if apierrors.IsConflict(err) {
		return fmt.Errorf("reporting to OLM whether an upgrade is safe: %w", err) // retried after a new read
	}
	if err != nil {
		r.events.Eventf(object, nil, corev1.EventTypeWarning, eventOperatorCondition, "Update",
			"The operator can't report to OLM whether an upgrade is safe: %v", err)
		return fmt.Errorf("reporting to OLM whether an upgrade is safe: %w", err)
	}
	return nil
}

func (r *Reconciler) saveCondition(ctx context.Context, object *unstructured.Unstructured,
	condition metav1.Condition) error {
	var known struct {
		Spec struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &known); err != nil {
		return fmt.Errorf("reading OperatorCondition %s: %w", r.OperatorCondition, err)
	}
	condition.ObservedGeneration, condition.LastTransitionTime = 0, metav1.Time{} // both belong to the settings
	if !meta.SetStatusCondition(&known.Spec.Conditions, condition) {
		return nil
	}
	wanted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&known.Spec)
	if err == nil {
		err = unstructured.SetNestedField(object.Object, wanted["conditions"], "spec", "conditions")
	}
	if err != nil {
		return fmt.Errorf("writing the conditions of OperatorCondition %s: %w", r.OperatorCondition, err)
	}
	if err := r.client.Update(ctx, object); err != nil {
		return fmt.Errorf("saving OperatorCondition %s: %w", r.OperatorCondition, err)
	}
	logf.FromContext(ctx).Info("reported to OLM whether an upgrade is safe", "upgradeable", condition.Status, "reason",
		condition.Reason)
	return nil
}
