package instance

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// report turns an outcome into reason, code, fix and conditions. Ready is the node's, whatever is
// under way: a host that waits for its update, or fails at it, serves on.
func (c *reconciliation) report(ctx context.Context, outcome journey.Outcome) {
	var node *corev1.Node
	var err error
	if !outcome.IsDone() {
		node, err = c.journeys.health.Serving(ctx, c.instance)
	}
	c.status.report(outcome, node, err == nil)
}

// result saves once and says when to come again.
func (c *reconciliation) result(ctx context.Context, after time.Duration) (ctrl.Result, error) {
	if err := c.record.save(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// What comes of a revision that was requested of hundreds of nodes at once is written down by few at a
// time, and by the others a little later: while nodes have yet to hear and to answer, that goes
// first. It is so for writeThrottle after the request.
const (
	noters        = 4
	writeThrottle = time.Minute
	writeDelay    = time.Second
)

// await saves what was reported of an outcome, and says when to come again. For the quiet time
// after a revision was requested of a daemon nothing is saved of that the node has yet to follow, to be
// Ready again or to stay so, if the daemon says nothing against it.
func (c *reconciliation) await(ctx context.Context, node *corev1.Node, outcome journey.Outcome,
	quiet time.Duration) (ctrl.Result, error) {
	since := c.now().Sub(c.life.requestedAt)
	if quiet == 0 || since >= max(quiet, writeThrottle) || journey.DoesNotHold(node) {
		return c.result(ctx, outcome.After)
	}
	if !outcome.IsDone() && since < quiet && isTransient(outcome.Problem.Reason) {
		return c.record.postpone(outcome.After, quiet-since)
	}
	if !c.record.isUrgent() {
		if !c.notes.TryAcquire(1) {
			return c.record.postpone(outcome.After, writeDelay+time.Duration(c.jitter()*float64(writeDelay)))
		}
		defer c.notes.Release(1)
	}
	return c.result(ctx, outcome.After)
}

// isTransient says that a daemon has time to get over a reason by itself.
func isTransient(reason contract.Reason) bool {
	switch reason {
	case contract.ReasonRevisionPending, contract.ReasonBudgetExhausted, contract.ReasonNodeNotReady,
		contract.ReasonSettling:
		return true
	}
	return false
}
