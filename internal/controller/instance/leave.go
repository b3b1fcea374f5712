package instance

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
)

// leave gives the host back, then lets the instance go.
func (w *walk) leave(ctx context.Context) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(w.instance, contract.InstanceFinalizer) {
		w.end(w.life)
		return ctrl.Result{}, nil
	}
	status, removal := &w.instance.Status, w.instance.Spec.RemovalPolicy
	changed := status.ObservedGeneration != w.instance.Generation
	status.ObservedGeneration = w.instance.Generation
	switch {
	case w.life.left:
		return w.release(ctx)
	case w.instance.Spec.Paused && removal != v1alpha1.RemovalForce && removal != v1alpha1.RemovalDiscard:
		w.stand()
		w.report(ctx, journey.Wait(pausedRetry, contract.ReasonPaused,
			"spec.paused is true, and the instance is to be removed"))
		return w.result(ctx, pausedRetry)
	case changed:
		status.NextAttemptTime = nil // the user has changed something: try at once
	}
	if wait := w.untilNextAttempt(); wait > 0 && status.Phase == v1alpha1.PhaseRemoving {
		return w.result(ctx, wait)
	}
	verdict, err := w.mayLeave(ctx)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case !verdict.Allowed:
		w.report(ctx, journey.Wait(budgetRetry, contract.ReasonRemovalPending, "%s", verdict.Why))
		return w.result(ctx, budgetRetry)
	case status.Phase != v1alpha1.PhaseRemoving:
		w.turn(ctx)
		if err := w.save(ctx); err != nil {
			return ctrl.Result{}, err
		}
	}
	bounds, err := w.bounds(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	outcome := w.give(ctx, bounds.Drain)
	switch {
	case outcome.IsFailed():
		return w.failed(ctx, outcome)
	case outcome.IsWaiting():
		w.report(ctx, outcome)
		return w.result(ctx, outcome.After)
	}
	w.life.left = true
	return w.release(ctx)
}

// give takes one step of the way out that the instance's removal policy names.
func (w *walk) give(ctx context.Context, drainTimeout time.Duration) journey.Outcome {
	if w.instance.Spec.RemovalPolicy == v1alpha1.RemovalDiscard {
		w.life.session.End()
		return w.journeys.remove.Discard(ctx, w.instance, drainTimeout)
	}
	return w.journeys.remove.Leave(ctx, w.instance, &w.life.session, drainTimeout)
}

// mayLeave has a host that is to be removed take a place in the rollout budget, so that removing
// many drains no more at once than anything else does. No window holds it: whoever removes it has
// said when. A host that is no node has no pods to lose, and who forces a removal does not wait.
func (w *walk) mayLeave(ctx context.Context) (policy.Verdict, error) {
	status := &w.instance.Status
	free := policy.Verdict{Allowed: true, Why: "no pods are disturbed"}
	if !policy.NeedsPlace(w.instance.Spec.RemovalPolicy) || status.JoinedTime == nil {
		return free, nil
	}
	node, err := w.parts.Nodes.Ours(ctx, w.instance)
	if err != nil || node == nil {
		return free, err
	}
	if place := status.Disruption; place != nil {
		if place.Purpose != v1alpha1.DisruptionRemove { // it goes on in the place that it has
			status.Disruption = &v1alpha1.Disruption{Purpose: v1alpha1.DisruptionRemove, Since: microless(w.now())}
		}
		return free, nil
	}
	switch status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseUpdating, v1alpha1.PhaseRebooting, v1alpha1.PhaseRemoving:
	default: // what is under way at the host ends
		w.life.session.End()
		w.parts.Slots.Release(w.instance.UID)
		w.serveOn()
	}
	var verdict policy.Verdict
	verdict.Allowed, err = w.gate.Ask(ctx, rollout.Question{
		Name: w.waits(), Node: node.Name, Order: w.order(node), Fresh: w.itsTurn(), Wake: w.wakes(),
		Decide: func(look rollout.Look) bool {
			verdict = look.MayRemove(node.Name)
			return verdict.Allowed
		},
		Act: func(ctx context.Context) error { return w.claim(ctx, v1alpha1.DisruptionRemove) },
	})
	return verdict, err
}

// turn ends the way in and begins the way out.
func (w *walk) turn(ctx context.Context) {
	w.life.session.End()
	w.parts.Slots.Release(w.instance.UID)
	w.gate.Leave(w.waits())
	status := &w.instance.Status
	status.Failures, status.NextAttemptTime, status.DrainTime, status.Update, status.Reboot = 0, nil, nil, nil, nil
	w.life.failedIn = ""
	w.enter(v1alpha1.PhaseRemoving, true)
	w.report(ctx, journey.Wait(0, contract.ReasonInProgress, "leaving"))
}

// release lets the instance go: its status, and with it the pinned host key, is forgotten.
// Finalizers of others stay.
func (w *walk) release(ctx context.Context) (ctrl.Result, error) {
	without := w.saved.DeepCopy()
	controllerutil.RemoveFinalizer(without, contract.InstanceFinalizer)
	err := w.client.Patch(ctx, without, client.MergeFromWithOptions(w.saved, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("removing the finalizer: %w", err)
	}
	w.passed(v1alpha1.PhaseRemoving)
	w.tellTeardown(ctx)
	w.end(w.life)
	logf.FromContext(ctx).Info("instance removed", "address", w.instance.Spec.Address, "node",
		w.instance.Status.NodeName, "policy", w.instance.Spec.RemovalPolicy)
	return ctrl.Result{}, nil
}
