package machine

import (
	"context"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/watch"
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
	return watch.TypedChanged(fromOpenShift)
}

// setNews lets through what we look at in a MachineSet.
func setNews() predicate.TypedPredicate[*machinev1beta1.MachineSet] {
	return watch.TypedChanged(func(s *machinev1beta1.MachineSet) policy.Set { return setOf(s, nil) })
}

// trialNews lets through what makes a Machine due for replacement, or another's turn.
func trialNews() predicate.Predicate {
	return watch.Changed(func(i *v1alpha1.WindowsInstance) []any {
		return []any{i.Spec.Paused, i.DeletionTimestamp, i.Status.PublicKeyHash, i.Status.KeyTrial, i.Status.Disruption,
			i.Status.NodeName}
	})
}

// memberNews lets a Node through when it comes to serve, or ceases to.
func memberNews() predicate.Predicate {
	return watch.Changed(func(n *corev1.Node) policy.Fleet {
		return policy.NewFleet([]corev1.Node{*n}, nil, nil, nil)
	})
}
