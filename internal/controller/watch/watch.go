// Package watch holds predicates and mappers that several controllers share. They select the events that make a
// controller reconcile, and the object that it reconciles.
//
// Controllers use it when they are set up. It never reads an object of the cluster.
package watch

import (
	"context"
	"reflect"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Changed selects objects that are created or deleted, and objects whose digest changes. It ignores other changes.
func Changed[T client.Object, D any](digest func(T) D) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.(T)
		after, isAfter := e.ObjectNew.(T)
		return isBefore && isAfter && !reflect.DeepEqual(digest(before), digest(after))
	}}
}

// Named selects objects of a namespace by their names. An empty name selects all of them.
func Named(namespace string, names ...string) predicate.Funcs {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == namespace && (slices.Contains(names, "") || slices.Contains(names, o.GetName()))
	})
}

// One requests the same object for every event.
func One(namespace, name string) handler.MapFunc {
	return func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
	}
}
