package instance

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// report writes an outcome into the conditions. The condition Ready only shows whether the node is in service: it can
// be True while the host waits for its upgrade, and after the upgrade failed.
func (c *reconciliation) report(ctx context.Context, outcome journey.Outcome) {
	var node *corev1.Node
	var err error
	if !outcome.IsDone() {
		node, err = c.journeys.health.Serving(ctx, c.instance)
	}
	c.status.report(outcome, node, err == nil)
}

func (c *reconciliation) result(ctx context.Context, after time.Duration) (ctrl.Result, error) {
	c.slot.withdraw()
	if err := c.record.save(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// If new settings request a revision from hundreds of nodes at once, writes of statuses must not delay nodes that
// haven't responded yet. Until writeThrottle is over, at most noters of these writes run at once.
const (
	noters        = 4
	writeThrottle = time.Minute
	writeDelay    = time.Second
)

// await does the same as the method `result`, but saves less after a request for a revision. For the duration of
// outcome.Quiet, it doesn't save that the node is still applying the revision, becoming Ready, or settling. Before
// writeThrottle is over, it postpones a write that doesn't change Ready if too many other writes are in progress.
func (c *reconciliation) await(ctx context.Context, node *corev1.Node, outcome journey.Outcome) (ctrl.Result, error) {
	c.slot.withdraw()
	quiet, since := outcome.Quiet, c.now().Sub(c.memory.requestedAt)
	if quiet == 0 || since >= max(quiet, writeThrottle) || journey.DoesNotHold(node) || !c.mayPostpone() {
		return c.result(ctx, outcome.After)
	}
	if !outcome.IsDone() && since < quiet && isTransient(outcome.Problem.Reason) {
		return ctrl.Result{RequeueAfter: policy.Soonest(outcome.After, quiet-since)}, nil
	}
	if c.isReady(&c.record.saved.Status) == c.isReady(&c.instance.Status) {
		if !c.notes.TryAcquire(1) {
			later := writeDelay + time.Duration(c.jitter()*float64(writeDelay))
			return ctrl.Result{RequeueAfter: policy.Soonest(outcome.After, later)}, nil
		}
		defer c.notes.Release(1)
	}
	return c.result(ctx, outcome.After)
}

func (c *reconciliation) isReady(status *v1alpha1.WindowsInstanceStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
}

// mayPostpone reports whether a later reconcile can determine all changes of the status again, from the Node.
func (c *reconciliation) mayPostpone() bool {
	rest := func(status *v1alpha1.WindowsInstanceStatus) *v1alpha1.WindowsInstanceStatus {
		s := status.DeepCopy()
		s.Revision, s.DesiredRevision, s.HeldRevision, s.Conditions = "", "", "", nil
		return s
	}
	saved, present := &c.record.saved.Status, &c.instance.Status
	return observed(saved) == observed(present) && equality.Semantic.DeepEqual(rest(saved), rest(present))
}

// isTransient reports whether a problem often disappears by itself within outcome.Quiet after a request.
func isTransient(reason contract.Reason) bool {
	switch reason {
	case contract.ReasonRevisionPending, contract.ReasonBudgetExhausted, contract.ReasonNodeNotReady,
		contract.ReasonSettling:
		return true
	}
	return false
}
