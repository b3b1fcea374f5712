// Package watch contains predicates and mappers that several controllers share. They select the events that trigger a
// reconcile, and the object to reconcile.
//
// Controllers use the package when they are set up. The package never reads an object from the cluster.
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

// Changed selects events about objects that are created or deleted, and about objects whose digest changes.
func Changed[T client.Object, D any](digest func(T) D) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.(T)
		after, isAfter := e.ObjectNew.(T)
		return isBefore && isAfter && !reflect.DeepEqual(digest(before), digest(after))
	}}
}

// Named selects the objects with these names in a namespace. An empty name selects all objects in it.
func Named(namespace string, names ...string) predicate.Funcs {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == namespace && (slices.Contains(names, "") || slices.Contains(names, o.GetName()))
	})
}

// One returns a mapper that requests the same object for every event.
func One(namespace, name string) handler.MapFunc {
	return func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
	}
}
