// Package batch answers when a controller looks that looks at everything at once: when the first of
// many news is a moment old.
//
// A change that concerns hundreds of nodes is hundreds of events within seconds. Controllers whose
// one object stands for the whole fleet would read all of it for each.
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

// gatherPeriod is how long news are gathered: short for whoever reads a status, and long for an API
// server.
const gatherPeriod = time.Second

// Signal wakes one controller. Events that are still queued are merged into one.
type Signal chan event.GenericEvent

// NewSignal returns an empty Signal.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the controller with an event about an object, unless it is about to be woken.
func (s Signal) Send(object client.Object) {
	select {
	case s <- event.GenericEvent{Object: object}:
	default: // one is waiting there already
	}
}

// News asks for one look at all news that come within a moment. look names what is reconciled,
// whichever object the news are of.
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
