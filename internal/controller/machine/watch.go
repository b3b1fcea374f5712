package machine

import (
	"context"
	"reflect"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// all is the only request that there is: Machines are looked at together, as two of them may have
// one address, and one may have to wait for another.
func all[T any](context.Context, T) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: contract.MachineAPINamespace,
		Name: "all"}}}
}

// machineNews lets through what we look at in a Machine; clouds report much more.
func machineNews() predicate.TypedPredicate[*machinev1beta1.Machine] {
	return predicate.TypedFuncs[*machinev1beta1.Machine]{
		UpdateFunc: func(e event.TypedUpdateEvent[*machinev1beta1.Machine]) bool {
			return !reflect.DeepEqual(fromOpenShift(e.ObjectOld), fromOpenShift(e.ObjectNew))
		}}
}

// setNews lets through what we look at in a MachineSet.
func setNews() predicate.TypedPredicate[*machinev1beta1.MachineSet] {
	return predicate.TypedFuncs[*machinev1beta1.MachineSet]{
		UpdateFunc: func(e event.TypedUpdateEvent[*machinev1beta1.MachineSet]) bool {
			return !reflect.DeepEqual(setOf(e.ObjectOld, nil), setOf(e.ObjectNew, nil))
		}}
}

// trialNews lets through what makes a Machine due for replacement, or another's turn.
func trialNews() predicate.Predicate {
	digest := func(i *v1alpha1.WindowsInstance) []any {
		return []any{i.Spec.Paused, i.DeletionTimestamp, i.Status.PublicKeyHash, i.Status.KeyTrial, i.Status.Disruption,
			i.Status.NodeName}
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, okOld := e.ObjectOld.(*v1alpha1.WindowsInstance)
		instance, okNew := e.ObjectNew.(*v1alpha1.WindowsInstance)
		return okOld && okNew && !equality.Semantic.DeepEqual(digest(old), digest(instance))
	}}
}

// memberNews lets a Node through when it comes to serve, or ceases to.
func memberNews() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, okOld := e.ObjectOld.(*corev1.Node)
		node, okNew := e.ObjectNew.(*corev1.Node)
		return okOld && okNew && !reflect.DeepEqual(policy.NewFleet([]corev1.Node{*old}, nil, nil, nil),
			policy.NewFleet([]corev1.Node{*node}, nil, nil, nil))
	}}
}
