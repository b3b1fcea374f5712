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

// result saves the status, and returns when to reconcile next.
func (c *reconciliation) result(ctx context.Context, after time.Duration) (ctrl.Result, error) {
	c.slot.withdraw()
	if err := c.record.save(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// New settings may request a revision from hundreds of nodes at once. During writeThrottle after the request, at most
// noters statuses are written at a time, so that these writes don't delay nodes that haven't responded yet.
const (
	noters        = 4
	writeThrottle = time.Minute
	writeDelay    = time.Second
)

// await saves the status, and returns when to reconcile next. Exception: during the time outcome.Quiet after a request
// for a revision, it doesn't save a status that only says that the node is still applying the revision, becoming Ready,
// or settling.
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

// mayPostpone reports whether the operator can find out all changes of the status later, by reading the Node.
func (c *reconciliation) mayPostpone() bool {
	rest := func(status *v1alpha1.WindowsInstanceStatus) *v1alpha1.WindowsInstanceStatus {
		s := status.DeepCopy()
		s.Revision, s.DesiredRevision, s.HeldRevision, s.Conditions = "", "", "", nil
		return s
	}
	saved, present := &c.record.saved.Status, &c.instance.Status
	return observed(saved) == observed(present) && equality.Semantic.DeepEqual(rest(saved), rest(present))
}

// isTransient reports whether a problem often disappears by itself within the quiet time after a request.
func isTransient(reason contract.Reason) bool {
	switch reason {
	case contract.ReasonRevisionPending, contract.ReasonBudgetExhausted, contract.ReasonNodeNotReady,
		contract.ReasonSettling:
		return true
	}
	return false
}
