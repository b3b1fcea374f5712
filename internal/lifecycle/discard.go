package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// discardRetry is how often it is asked whether a leaving Machine is gone. The question is answered
// from a cache while it is there.
const discardRetry = 2 * time.Second

// Origins tells what became of the Machines that instances were made from.
type Origins interface {
	// Origin answers about an instance whose source is a Machine. A repeated call asks again.
	Origin(ctx context.Context, instance *v1alpha1.WindowsInstance) (Origin, error)
}

// Origin is how the Machine of an instance is.
type Origin struct {
	// Exists is false once the Machine, and with it its host, is gone.
	Exists bool
	// Drains says that whoever removes the Machine drains its Node before.
	Drains bool
}

// Discard lets a host go that is destroyed with its Machine. It is never contacted. While the
// Machine is there its Node stays, because whoever removes the Machine drains the Node, and moves
// its pods where they end in their own time; a Node that nobody drains is drained here as far as
// the time allows. Afterwards the Node goes, if it is still there.
func (w *Walker) Discard(ctx context.Context, instance *v1alpha1.WindowsInstance, drainTimeout time.Duration) Outcome {
	origin, err := w.origin(ctx, instance)
	if err != nil {
		return retry(err)
	}
	node, err := w.ours(ctx, instance)
	if err != nil {
		return retry(err)
	}
	if origin.Exists {
		if node != nil && !origin.Drains {
			if err = w.mark(ctx, node, Marks{Instance: instance, Cordon: true}); err != nil {
				return retry(err)
			}
			if outcome := w.drain(ctx, instance, node.Name, drainTimeout); outcome.IsWaiting() {
				return outcome
			}
		}
		return Wait(discardRetry, contract.ReasonMachineLeaving, "Machine %s is being deleted",
			instance.Spec.Source.Name)
	}
	if node != nil {
		if err = w.remove(ctx, node); err != nil {
			return retry(err)
		}
	}
	if err = w.revoke(ctx, instance); err != nil {
		return retry(err)
	}
	return Done()
}

// origin takes an instance that was not made from a Machine for one whose Machine is gone.
func (w *Walker) origin(ctx context.Context, instance *v1alpha1.WindowsInstance) (Origin, error) {
	source := instance.Spec.Source
	if w.Origins == nil || source == nil || source.Kind != v1alpha1.SourceMachine {
		return Origin{}, nil
	}
	origin, err := w.Origins.Origin(ctx, instance)
	if err != nil {
		return Origin{}, fmt.Errorf("asking what became of Machine %s: %w", source.Name, err)
	}
	return origin, nil
}
