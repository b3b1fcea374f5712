package instance

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/lifecycle"
	"github.com/windows-nodes/wmco/internal/policy"
)

// update takes a host to another version as soon as it may.
func (w *walk) update(ctx context.Context, care lifecycle.Care) (ctrl.Result, error) {
	if care.Update.Disruptive {
		verdict, err := w.mayDisrupt(ctx, care.Node)
		if err != nil {
			return ctrl.Result{}, err
		}
		if !verdict.Allowed {
			logf.FromContext(ctx).V(1).Info("update waits", "version", care.Update.Version, "why", verdict.Why)
			w.report(ctx, care.Outcome)
			return w.result(ctx, budgetRetry)
		}
		logf.FromContext(ctx).Info("updating", "version", care.Update.Version, "overSSH", care.Update.Walk, "why", verdict.Why)
	}
	if care.Update.Walk {
		w.instance.Status.Phase = v1alpha1.PhasePending
		return w.join(ctx)
	}
	if err := w.walker.Move(ctx, w.instance, care.Node, care.Update.Version); err != nil {
		return ctrl.Result{}, err
	}
	w.report(ctx, lifecycle.Wait(0, contract.ReasonVersionPending, "the daemon of node %s goes to version %s", care.Node.Name, care.Update.Version))
	return w.result(ctx, 0)
}

// mayWalk decides whether a host may walk the way in. One whose node serves needs a place in the rollout budget, also when an attempt
// failed or the operator was restarted; and a host that can't be reached while its node serves keeps no place from others.
func (w *walk) mayWalk(ctx context.Context) (policy.Verdict, error) {
	free := policy.Verdict{Allowed: true, Why: "no pods are disturbed"}
	if w.life.node != "" {
		return free, nil
	}
	node, err := w.walker.Serving(ctx, w.instance)
	if err != nil || node == nil {
		return free, err
	}
	return w.mayDisrupt(ctx, node)
}

// mayDisrupt decides over a view that holds what this process has allowed, so that two hosts never take the last place at once.
func (w *walk) mayDisrupt(ctx context.Context, node *corev1.Node) (policy.Verdict, error) {
	config, err := w.config(ctx)
	if err != nil {
		return policy.Verdict{}, err
	}
	nodes := &corev1.NodeList{}
	if err = w.client.List(ctx, nodes, client.MatchingLabels{contract.OSIDLabel: contract.OSIDWindows}, client.UnsafeDisableDeepCopy); err != nil {
		return policy.Verdict{}, fmt.Errorf("listing nodes: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	busy := maps.Clone(w.disrupted)
	delete(busy, node.Name) // it does not wait for itself
	verdict := policy.MayDisrupt(node, nodes.Items, busy, config.Spec.Rollout.MaxUnavailable)
	w.stopWaiting(w.instance.UID)
	if verdict.Allowed {
		w.disrupted[node.Name], w.life.node = true, node.Name
	} else {
		w.waiters = append(w.waiters, w.instance.UID)
	}
	return verdict, nil
}

// arrived gives back a place in the rollout budget, if the instance had one, and lets the next one that waits ask again.
func (r *Reconciler) arrived(one *life) {
	r.mu.Lock()
	delete(r.disrupted, one.node)
	one.node = ""
	var next types.UID
	if len(r.waiters) > 0 {
		next = r.waiters[0]
		r.waiters = r.waiters[1:]
	}
	r.mu.Unlock()
	if next != "" {
		r.wake(next)
	}
}

// stopWaiting takes an instance out of the queue. r.mu is held.
func (r *Reconciler) stopWaiting(id types.UID) {
	r.waiters = slices.DeleteFunc(r.waiters, func(waiter types.UID) bool { return waiter == id })
}
