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
	"github.com/windows-nodes/wmco/internal/lifecycle"
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
		w.report(ctx, lifecycle.Wait(pausedRetry, contract.ReasonPaused,
			"spec.paused is true, and the instance is to be removed"))
		return w.result(ctx, pausedRetry)
	case status.Phase != v1alpha1.PhaseRemoving:
		if err := w.turn(ctx); err != nil {
			return ctrl.Result{}, err
		}
	case changed:
		status.NextAttemptTime = nil // the user has changed something: try at once
	}
	if wait := w.untilNextAttempt(); wait > 0 {
		return w.result(ctx, wait)
	}
	timeout, err := w.drainTimeout(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	outcome := w.give(ctx, timeout)
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
func (w *walk) give(ctx context.Context, drainTimeout time.Duration) lifecycle.Outcome {
	if w.instance.Spec.RemovalPolicy == v1alpha1.RemovalDiscard {
		w.life.visit.End()
		return w.walker.Discard(ctx, w.instance, drainTimeout)
	}
	return w.walker.Leave(ctx, w.instance, &w.life.visit, drainTimeout)
}

// turn ends the way in and begins the way out.
func (w *walk) turn(ctx context.Context) error {
	w.stand()
	w.instance.Status.Failures, w.instance.Status.NextAttemptTime, w.instance.Status.Update,
		w.instance.Status.Reboot = 0, nil, nil, nil
	w.life.failedIn = ""
	w.enter(v1alpha1.PhaseRemoving, true)
	w.report(ctx, lifecycle.Wait(0, contract.ReasonInProgress, "leaving"))
	return w.save(ctx)
}

// drainTimeout is when a drain is reported as blocked.
func (r *Reconciler) drainTimeout(ctx context.Context) (time.Duration, error) {
	config, err := r.config(ctx)
	if err != nil {
		return 0, err
	}
	if config.Spec.Rollout.DrainTimeout == nil {
		return v1alpha1.DefaultDrainTimeout, nil
	}
	return config.Spec.Rollout.DrainTimeout.Duration, nil
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
