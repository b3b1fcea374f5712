package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/drain"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// drainRetry is how often the pods of a draining node are looked at.
const drainRetry = 2 * time.Second

// Leave gives a host back: cordon, connect, drain, clean, forget. It is done when nothing of the
// instance is left in the cluster, nor, unless the user forces it, on the host. drainTimeout is
// when to report a drain as blocked; it goes on trying. Forced, it tries each step once.
func (w *Walker) Leave(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit,
	drainTimeout time.Duration) Outcome {
	node, err := w.ours(ctx, instance)
	if err != nil {
		return retry(err)
	}
	if node != nil {
		if err = w.mark(ctx, node, Marks{Instance: instance, Cordon: true}); err != nil {
			return retry(err)
		}
	}
	force := instance.Spec.RemovalPolicy == v1alpha1.RemovalForce
	if outcome := w.vacate(ctx, instance, visit, node, drainTimeout); !outcome.IsDone() && !force {
		return outcome
	}
	if node, err = w.ours(ctx, instance); err != nil { // kubelet may have registered it while we were at the host
		return retry(err)
	}
	if node != nil {
		if err = w.remove(ctx, node); err != nil {
			return retry(err)
		}
	}
	if err = w.revoke(ctx, instance); err != nil {
		return retry(err)
	}
	if visit.Connected() {
		if err = visit.conn.Unplant(ctx); err != nil && !force {
			return Fail(fmt.Errorf("removing the planted daemon: %w", err))
		}
	}
	visit.End()
	return Done()
}

// vacate empties the node and cleans the host. A host that was never reached has nothing to clean;
// nor has one that this instance has no claim to, because preflight, which claims it, changes
// nothing: it may be another instance's node.
func (w *Walker) vacate(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit, node *corev1.Node,
	timeout time.Duration) Outcome {
	if instance.Status.HostKey == "" || instance.Status.NodeName == "" {
		return Done()
	}
	if !visit.Connected() {
		if outcome := w.dial(ctx, instance, visit); !outcome.IsDone() {
			return outcome
		}
	}
	if node != nil && !visit.drained {
		outcome := w.drain(ctx, instance, node.Name, timeout)
		if !outcome.IsDone() && instance.Spec.RemovalPolicy != v1alpha1.RemovalForce {
			return outcome
		}
		visit.drained = true
	}
	if visit.cleaned {
		return Done()
	}
	outcome := w.clean(ctx, visit)
	visit.cleaned = outcome.IsDone()
	return outcome
}

// clean has the daemon take everything away.
func (w *Walker) clean(ctx context.Context, visit *Visit) Outcome {
	if _, err := w.plant(ctx, visit); err != nil {
		return Fail(err)
	}
	answer, err := call[contract.CleanupAnswer](ctx, visit.conn, contract.VerbCleanup, contract.CleanupRequest{})
	if err != nil {
		return Fail(err)
	}
	if len(answer.Left) > 0 {
		return Fail(&contract.Problem{Reason: contract.ReasonCleanupFailed, Detail: joined(answer.Left).Detail})
	}
	return Done()
}

// drain evicts pods within their own grace periods and disruption budgets, a bounded step each time
// it is called.
func (w *Walker) drain(ctx context.Context, instance *v1alpha1.WindowsInstance, nodeName string,
	timeout time.Duration) Outcome {
	began := drainBegan(instance, w.Now())
	helper := &drain.Helper{Ctx: ctx, Client: w.Pods, Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true,
		GracePeriodSeconds: -1}
	list, errs := helper.GetPodsForDeletion(nodeName)
	if len(errs) > 0 {
		return retry(fmt.Errorf("listing pods of node %s: %w", nodeName, errors.Join(errs...)))
	}
	var blocked, ending []string
	var away error
	inGrace := false
	for _, pod := range list.Pods() {
		if pod.DeletionTimestamp != nil {
			ending = append(ending, pod.Namespace+"/"+pod.Name)
			inGrace = inGrace || pod.DeletionTimestamp.After(w.Now()) // that is when its grace period ends
			continue
		}
		switch err := helper.EvictPod(pod, policyv1.SchemeGroupVersion); {
		case client.IgnoreNotFound(err) == nil:
		case isAnswer(err):
			blocked = append(blocked, fmt.Sprintf("%s/%s (%.200s)", pod.Namespace, pod.Name, err.Error()))
		default:
			away = fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		if away != nil {
			break // the others would wait for the same API server
		}
	}
	left := len(list.Pods())
	if left == 0 {
		instance.Status.DrainTime = nil
		return Done()
	}
	switch {
	case w.Now().Sub(began) > timeout && !inGrace:
		return Wait(drainRetry, contract.ReasonDrainBlocked, "%d pods are left after %s; not let go: [%s]; told to "+
			"end and still there: [%s]", left, timeout, some(blocked), some(ending))
	case away != nil:
		return retry(away)
	}
	return Wait(drainRetry, contract.ReasonDraining, "%d pods are left", left)
}

// drainBegan is when the pods of this drain were first told to go. A time from before the host got
// its present place is that of an earlier drain.
func drainBegan(instance *v1alpha1.WindowsInstance, now time.Time) time.Time {
	status := &instance.Status
	if began := status.DrainTime; began == nil || status.Disruption != nil && began.Before(&status.Disruption.Since) {
		status.DrainTime = &metav1.Time{Time: now}
	}
	return status.DrainTime.Time
}

// isAnswer tells an API server that refuses an eviction, for whatever cause, from one that does not
// answer: a disruption budget (429), two of them over one pod (500), a webhook that denies it (4xx)
// or fails (500).
func isAnswer(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && !apierrors.IsServiceUnavailable(err)
}

// some names the first few.
func some(names []string) string {
	const few = 5
	slices.Sort(names)
	return strings.Join(names[:min(few, len(names))], " ")
}

// Ours reads the instance's Node; nil when there is none or it is another's.
func (w *Walker) Ours(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, error) {
	return w.ours(ctx, instance)
}

// ours reads the instance's Node; nil when there is none or it is another's. One that kubelet has
// just registered has no mark yet.
func (w *Walker) ours(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, error) {
	if instance.Status.NodeName == "" {
		return nil, nil
	}
	node, err := w.node(ctx, instance.Status.NodeName)
	if err != nil || node == nil || Foreign(node, instance) != nil {
		return nil, err
	}
	return node, nil
}

// Remember claims again, after a restart, what an instance had claimed before.
func (w *Walker) Remember(instance *v1alpha1.WindowsInstance) {
	if instance.Status.NodeName == "" {
		return
	}
	by := Claimant{UID: instance.UID, Key: types.NamespacedName{Namespace: instance.Namespace, Name: instance.Name}}
	if instance.Status.Host != nil {
		by.MachineID = instance.Status.Host.MachineID
	}
	w.Claims.Claim(instance.Status.NodeName, by)
}

// remove deletes this very Node.
func (w *Walker) remove(ctx context.Context, node *corev1.Node) error {
	if err := w.Client.Delete(
		ctx, node, client.Preconditions{UID: ptr.To(node.UID)}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting node %s: %w", node.Name, err)
	}
	return nil
}
