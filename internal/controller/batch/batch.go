// Package batch merges events for controllers that reconcile the whole fleet at once. After the first of many events,
// such a controller waits a moment, and then reconciles once for all of them.
//
// A change to hundreds of nodes causes hundreds of events within seconds. Without batch, a controller would read the
// fleet after each event.
package batch

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// gatherPeriod is how long events are collected before the controller reconciles. A user who reads a status doesn't
// notice this delay, but it saves the API server many requests.
const gatherPeriod = time.Second

// Signal wakes one controller. It contains at most one event, so events that wait for the controller are merged.
type Signal chan event.GenericEvent

// NewSignal returns an empty Signal.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the controller with an event about an object, unless an earlier event will wake the controller anyway.
func (s Signal) Send(object client.Object) {
	select {
	case s <- event.GenericEvent{Object: object}:
	default: // an event is already pending
	}
}

// News requests one reconcile for all events within gatherPeriod. The function `look` returns the objects for an event.
func News(look handler.MapFunc) handler.Funcs {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	later := func(ctx context.Context, object client.Object, q queue) {
		for _, request := range look(ctx, object) {
			q.AddAfter(request, gatherPeriod)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { later(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { later(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { later(ctx, e.Object, q) },
	}
}
