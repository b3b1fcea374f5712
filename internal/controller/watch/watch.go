// Package watch answers which events have a controller look, and at what: predicates and mappers that
// several controllers share.
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

// Changed lets objects through that come or go, or of which digest answers otherwise than before. It lets no
// change of another kind than T through.
func Changed[T client.Object, D any](digest func(T) D) predicate.Funcs {
	return TypedChanged(func(o client.Object) any {
		if object, ok := o.(T); ok {
			return digest(object)
		}
		return nil
	})
}

// TypedChanged is Changed for a source that has one kind only.
func TypedChanged[T, D any](digest func(T) D) predicate.TypedFuncs[T] {
	return predicate.TypedFuncs[T]{UpdateFunc: func(e event.TypedUpdateEvent[T]) bool {
		return !reflect.DeepEqual(digest(e.ObjectOld), digest(e.ObjectNew))
	}}
}

// Named lets objects of a namespace through that have one of the names; an empty name lets all of it through.
func Named(namespace string, names ...string) predicate.Funcs {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == namespace && (slices.Contains(names, "") || slices.Contains(names, o.GetName()))
	})
}

// One has one object reconciled, whatever the event is about.
func One(namespace, name string) handler.MapFunc {
	return func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
	}
}
