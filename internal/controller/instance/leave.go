package instance

import (
	"cmp"
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// leaving is the reconcile of a host that is being removed.
type leaving struct{ *reconciliation }

func (c leaving) run(ctx context.Context) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(c.instance, contract.InstanceFinalizer) {
		c.end(c.memory)
		return ctrl.Result{}, nil
	}
	status, removal := &c.instance.Status, c.instance.Spec.RemovalPolicy
	c.observe()
	if c.memory.left {
		return c.release(ctx)
	}
	if status.Phase != v1alpha1.PhaseRemoving {
		created := c.instance.CreationTimestamp.Time
		if stays, err := cluster.KindStays(ctx, c.parts.Live, contract.InstanceCRD, created); err != nil {
			return ctrl.Result{}, fmt.Errorf("finding out whether to remove the host: %w", err)
		} else if !stays {
			return c.letGo(ctx)
		}
	}
	if c.instance.Spec.Paused && removal != v1alpha1.RemovalForce && removal != v1alpha1.RemovalDiscard {
		c.stop()
		c.report(ctx, journey.Wait(pausedRetry, contract.ReasonPaused,
			"spec.paused is true, so the removal of the instance waits"))
		return c.result(ctx, pausedRetry)
	}
	if wait := c.untilNextAttempt(); wait > 0 && status.Phase == v1alpha1.PhaseRemoving {
		return c.result(ctx, wait)
	}
	verdict, err := c.mayLeave(ctx)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case !verdict.Allowed:
		c.report(ctx, journey.Wait(budgetRetry, cmp.Or(verdict.Reason, contract.ReasonRemovalPending), "%s",
			verdict.Shown()))
		return c.result(ctx, budgetRetry)
	case status.Phase != v1alpha1.PhaseRemoving:
		c.turn(ctx)
		if err := c.record.save(ctx); err != nil {
			return ctrl.Result{}, err
		}
	}
	return c.takeStep(ctx)
}

// letGo removes the finalizer of an instance whose CRD is being deleted. It changes neither the host nor its Node,
// because no user has removed this host. If the CRD is created again, the host gets a new instance.
func (c leaving) letGo(ctx context.Context) (ctrl.Result, error) {
	c.stop()
	if err := c.dropFinalizer(ctx); err != nil {
		return ctrl.Result{}, err
	}
	c.end(c.memory)
	logf.FromContext(ctx).Info("the CRD of WindowsInstances is deleted: host and node stay as they are", "address",
		c.instance.Spec.Address, "node", c.instance.Status.NodeName)
	return ctrl.Result{}, nil
}

func (c leaving) takeStep(ctx context.Context) (ctrl.Result, error) {
	bounds, err := c.bounds(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	outcome := c.journeys.remove.Next(ctx, c.instance, &c.memory.session, bounds.Drain)
	switch {
	case outcome.IsFailed(), outcome.IsWaiting() && outcome.Problem.Reason == contract.ReasonDrainBlocked:
		return c.failed(ctx, outcome) // the obstacle may last long, so release the slot
	case outcome.IsWaiting():
		if outcome.Endless {
			c.slot.release()
		}
		c.report(ctx, outcome)
		return c.result(ctx, outcome.After)
	}
	c.Note(ctx, outcome)
	c.memory.left = true
	return c.release(ctx)
}

// mayLeave decides whether a removal may begin. A removal needs a slot in the rollout budget, so that removals and
// upgrades together don't drain too many nodes. Maintenance windows don't apply, because the user chose the time.
func (c leaving) mayLeave(ctx context.Context) (policy.Verdict, error) {
	status := &c.instance.Status
	free := policy.Verdict{Allowed: true, Why: "no pods are disrupted"}
	if !policy.NeedsSlot(c.instance.Spec.RemovalPolicy) || journey.IsFirstJoin(status, c.node) {
		return free, nil
	}
	if node := journey.Ours(c.node, c.instance); node == nil {
		return free, nil
	}
	if status.HasSlot() { // the removal uses the slot that the host already has
		return free, nil
	}
	switch status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseUpdating, v1alpha1.PhaseRebooting, v1alpha1.PhaseRemoving:
	default: // a join is in progress: end it
		c.pauseRejoin()
	}
	if status.HostKey != "" && status.NodeName != "" { // the removal needs SSH, so first check for the key
		if key := c.parts.Access.HasKey(ctx, c.instance); !key.IsDone() {
			return policy.Verdict{Reason: key.Problem.Reason, Why: key.Problem.Detail}, nil
		}
	}
	return c.slot.take(ctx, func() {
		if status.Phase != v1alpha1.PhaseRemoving {
			c.turn(ctx)
		}
	})
}

// turn ends other work at the host, and begins the removal.
func (c leaving) turn(ctx context.Context) {
	c.endWork()
	status := &c.instance.Status
	status.Failures, status.Activity = 0, nil
	c.memory.failedIn = ""
	c.status.enter(v1alpha1.PhaseRemoving, true)
	c.report(ctx, journey.Wait(0, contract.ReasonInProgress, "leaving"))
}

// dropFinalizer removes only the operator's finalizer. After a conflict, Reconcile retries.
func (c leaving) dropFinalizer(ctx context.Context) error {
	without := c.record.saved.DeepCopy()
	controllerutil.RemoveFinalizer(without, contract.InstanceFinalizer)
	err := c.client.Patch(ctx, without, client.MergeFromWithOptions(c.record.saved,
		client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	return nil
}

// release removes the finalizer. As a result, the instance is deleted, including the pinned host key in its status.
func (c leaving) release(ctx context.Context) (ctrl.Result, error) {
	if err := c.dropFinalizer(ctx); err != nil {
		return ctrl.Result{}, err
	}
	c.status.passed(v1alpha1.PhaseRemoving)
	c.recorder.record(ctx, c.instance, teardownEvent(c.instance))
	c.end(c.memory)
	logf.FromContext(ctx).Info("instance removed", "address", c.instance.Spec.Address, "node",
		c.instance.Status.NodeName, "policy", c.instance.Spec.RemovalPolicy)
	return ctrl.Result{}, nil
}
