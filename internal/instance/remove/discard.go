package remove

import (
	"context"
	"fmt"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// discardRetry is how often the operator checks, in the cache, whether a Machine still exists.
const discardRetry = 2 * time.Second

// Discard removes a host that is destroyed with its Machine. It never contacts the host. While the Machine exists, the
// Node stays, because the machine controller drains it. If the Machine doesn't refer to the Node, Discard drains the
// Node. After drainTimeout, the drain is reported as blocked.
func (r *Remove) Discard(ctx context.Context, instance *v1alpha1.WindowsInstance,
	drainTimeout time.Duration) journey.Outcome {
	origin, err := r.origin(ctx, instance)
	if err != nil {
		return journey.Retry(err)
	}
	node, err := r.Nodes.Ours(ctx, instance)
	if err != nil {
		return journey.Retry(err)
	}
	if origin.Exists {
		if node != nil && !origin.Drains {
			if err = r.keepPodsAway(ctx, instance, node); err != nil {
				return r.NotCordoned(instance, drainTimeout, err)
			}
			if outcome := r.Drain(ctx, instance, node.Name, drainTimeout); outcome.IsWaiting() {
				return outcome
			}
		}
		return journey.Wait(discardRetry, contract.ReasonMachineLeaving, "Machine %s is being deleted",
			instance.Spec.Source.Name)
	}
	if err = r.deleteNode(ctx, instance); err != nil {
		return journey.FailRefused(err)
	}
	if err = r.RevokeCredentials(ctx, instance); err != nil {
		return journey.FailRefused(err)
	}
	return journey.Done()
}

// origin looks up the Machine. Without a Machine, the result is the same as for a deleted Machine.
func (r *Remove) origin(ctx context.Context, instance *v1alpha1.WindowsInstance) (journey.Origin, error) {
	source := instance.Spec.Source
	if r.Origins == nil || source == nil || source.Kind != v1alpha1.SourceMachine {
		return journey.Origin{}, nil
	}
	origin, err := r.Origins.Origin(ctx, instance)
	if err != nil {
		return journey.Origin{}, fmt.Errorf("asking what became of Machine %s: %w", source.Name, err)
	}
	return origin, nil
}
