package journey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// drainRetry is how often the operator checks the pods of a draining node.
	drainRetry = 2 * time.Second
	// evictionLimit is the time limit of one eviction. The API server ignores webhooks that take more than 30 s.
	evictionLimit = 35 * time.Second
	// evictionsAtOnce is how many pods are evicted concurrently, so that a few slow evictions don't delay the others.
	evictionsAtOnce = 16
	// questionLimit is the time limit for reading the owner of a pod from the API server.
	questionLimit = 5 * time.Second
)

// CordonAndDrain cordons a node and takes a step of its drain.
func (p *Parts) CordonAndDrain(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	timeout time.Duration) Outcome {
	if err := p.Nodes.Cordon(ctx, node); err != nil {
		return p.NotCordoned(instance, timeout, err)
	}
	return p.Drain(ctx, instance, node.Name, timeout)
}

// NotCordoned returns the wait after a failed cordon. If the API server refuses the cordon for the time `timeout`, the
// drain is blocked.
func (p *Parts) NotCordoned(instance *v1alpha1.WindowsInstance, timeout time.Duration, err error) Outcome {
	if left := p.Left(p.drainSince(instance), timeout); IsRefused(err) && left <= 0 {
		return Wait(drainRetry, contract.ReasonDrainBlocked, "after %s: %v", timeout, err)
	}
	return RetryWrite(err)
}

// Drain takes a short step of a drain: it evicts pods within grace periods and disruption budgets. Repeat until done.
func (p *Parts) Drain(ctx context.Context, instance *v1alpha1.WindowsInstance, nodeName string,
	timeout time.Duration) Outcome {
	now := p.Now()
	since := p.drainSince(instance)
	seen := podsLeft{now: now, began: since.Began, deadline: now.Add(p.Left(since, timeout))}
	all, err := pods.Each(ctx, p.Pods, pods.Query{Fields: pods.OfNode(nodeName), Now: p.Now},
		func(pod *corev1.Pod) error {
			if p.mustGo(ctx, pod, &seen) {
				seen.see(pod)
			}
			return nil
		})
	if err != nil {
		return Retry(fmt.Errorf("draining node %s: %w", nodeName, err))
	}
	group := errgroup.Group{}
	group.SetLimit(evictionsAtOnce)
	for _, eviction := range seen.evictions {
		group.Go(func() error {
			seen.evict(ctx, p, eviction)
			return nil
		})
	}
	_ = group.Wait() // no error is possible: each eviction records its result
	late := seen.now.After(seen.deadline) && !seen.inGrace
	switch {
	case seen.away != nil && (seen.count == 0 || !late):
		return Retry(seen.away)
	case all && seen.count == 0:
		p.Observed.While(instance, "drain", false)
		return Done()
	case late:
		return Wait(drainRetry, contract.ReasonDrainBlocked, "%s left after %s; eviction refused: [%s]; "+
			"still terminating: [%s]", contract.CountAre(seen.count, "pod"), timeout, strings.Join(seen.blocked, " "),
			strings.Join(seen.ending, " "))
	}
	return Wait(drainRetry, contract.ReasonDraining, "%s left", contract.CountAre(seen.count, "pod"))
}

// podsLeft summarises the pods on a node during a drain. It doesn't store them, because there may be any number.
type podsLeft struct {
	// now is the time of this step. `began` is when the drain began. deadline is when the drain must end.
	now, began, deadline time.Time
	count                int
	// blocked lists a few pods that can't be evicted. ending lists a few pods that are terminating.
	blocked, ending []string
	// inGrace reports that the drain still waits for the grace period of a terminating pod.
	inGrace   bool
	evictions []*policyv1.Eviction
	// If the API server does not respond, `away` is set, and evict skips the rest. mu guards `away` and `blocked`.
	mu   sync.Mutex
	away error
}

// see counts a pod that must leave the node. If the pod isn't terminating yet, see also adds an eviction of the pod.
func (l *podsLeft) see(pod *corev1.Pod) {
	l.count++
	if pod.DeletionTimestamp != nil {
		l.ending = few(l.ending, pod.Namespace+"/"+pod.Name)
		l.inGrace = l.inGrace || policy.HoldsDrain(pod, l.began, l.deadline, l.now)
		return
	}
	// clones don't keep the rest of the pod in memory
	l.evictions = append(l.evictions, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: strings.Clone(pod.Namespace), Name: strings.Clone(pod.Name)},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(strings.Clone(string(pod.UID)))},
	})
}

func (l *podsLeft) evict(ctx context.Context, p *Parts, eviction *policyv1.Eviction) {
	if l.isAway() {
		return
	}
	call, cancel := context.WithTimeout(ctx, evictionLimit)
	defer cancel()
	err := p.Pods.PolicyV1().Evictions(eviction.Namespace).Evict(call, eviction)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		l.block(eviction, fmt.Errorf("not released within %s: %w", evictionLimit, err))
	case client.IgnoreNotFound(err) != nil && !isReplaced(err):
		l.note(eviction, err)
	}
}

// isReplaced reports whether a pod is gone, and another pod has its name. Other conflicts, such as a conflict with a
// disruption budget, have the same code. The API server checks the UID in two places with different messages, and only
// their common text shows this conflict.
func isReplaced(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID in")
}

func (l *podsLeft) note(pod metav1.Object, err error) {
	if IsAPIResponse(err) {
		l.block(pod, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = fmt.Errorf("evicting pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)
}

func (l *podsLeft) isAway() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away != nil
}

func (l *podsLeft) block(pod metav1.Object, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = few(l.blocked, fmt.Sprintf("%s/%s (%.200s)", pod.GetNamespace(), pod.GetName(), err.Error()))
}

// drainSince returns when the drain of a host began. This is when the step Draining of an upgrade or a reboot began, or
// when a join got its slot. If the instance was deleted later, the time of its deletion counts. If none of these times
// is known, the time of the first call of drainSince counts.
func (p *Parts) drainSince(instance *v1alpha1.WindowsInstance) policy.Since {
	status, began := &instance.Status, time.Time{}
	switch activity := status.Activity; {
	case activity != nil && activity.Step == v1alpha1.StepDraining:
		began = activity.Since.Time
	case status.HasSlot():
		began = status.Slot.Since.Time
	}
	if removed := instance.DeletionTimestamp; removed != nil && removed.After(began) {
		began = removed.Time
	}
	if began.IsZero() {
		return p.Observed.While(instance, "drain", true)
	}
	return p.Observed.Since(instance, "drain", began)
}

// IsAPIResponse reports whether the API server answered, even with an error. The API server refuses an eviction because
// of a disruption budget (429), two budgets for one pod (500), or a webhook that denies (4xx) or fails (500).
func IsAPIResponse(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && !apierrors.IsServiceUnavailable(err)
}

// IsRefused reports whether the API server refused a write for a reason other than a conflict.
func IsRefused(err error) bool { return IsAPIResponse(err) && !apierrors.IsConflict(err) }

func few(names []string, name string) []string {
	const most = 5
	names = append(names, name)
	slices.Sort(names)
	return names[:min(most, len(names))]
}

// Evacuate takes the step Draining for a host that joins again. If the outcome is done, the join may disrupt the host.
// If pods can't be evicted in time, or if a user uncordons the node, the outcome is a failure.
func (p *Parts) Evacuate(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	bounds Bounds) Outcome {
	drain := (*Outcome)(nil)
	for {
		facts := policy.UpgradeFacts{DrainFacts: p.DrainFacts(ctx, &instance.Status, node, bounds, drain)}
		row := policy.NextUpgrade(v1alpha1.StepDraining, facts, p.Now())
		switch {
		case row.Action == policy.ActionDrain:
			drain = new(p.CordonAndDrain(ctx, instance, node, bounds.Drain))
		case row.Action == policy.ActionFail:
			return Fail(NotDrained(node, drain))
		case row.Next == v1alpha1.StepDraining:
			return *drain
		default:
			return Done()
		}
	}
}

// DrainFacts gathers the facts about the drain of a node. drain is the outcome of the drain in this reconcile, or nil.
func (p *Parts) DrainFacts(ctx context.Context, status *v1alpha1.WindowsInstanceStatus, node *corev1.Node,
	bounds Bounds, drain *Outcome) policy.DrainFacts {
	f := policy.DrainFacts{Uncordoned: IsUncordoned(node), IsOut: p.IsOut(node, bounds),
		HasLeft: p.HasLeft(ctx, status, node.Annotations[contract.DesiredRevisionAnnotation])}
	switch {
	case drain == nil:
	case drain.IsDone():
		f.Drain = policy.Drained
	case drain.Problem.Reason == contract.ReasonDrainBlocked:
		f.Drain = policy.DrainBlocked
	case drain.Problem.Reason == contract.ReasonDraining:
		f.Drain = policy.DrainRunning
	default:
		f.Drain = policy.DrainWaiting
	}
	return f
}

// NotDrained returns why the step Draining failed. drain is nil if a user removed the cordon.
func NotDrained(node *corev1.Node, drain *Outcome) *contract.Problem {
	if drain != nil {
		return drain.Problem
	}
	return contract.NewProblem(contract.ReasonUncordoned,
		"a user uncordoned node %s while the operator was draining it", node.Name)
}

// HasLeft reports whether the revision requested from the daemon needs a slot and is not the node's previous revision.
// If that revision can't be read, it counts as needing a slot.
func (p *Parts) HasLeft(ctx context.Context, status *v1alpha1.WindowsInstanceStatus, requested string) bool {
	switch update, held := status.Upgrade(), status.HeldRevision; {
	case update == nil || held == "" || requested == held:
		return false
	case requested == update.Revision:
		return true
	}
	to, found, err := p.Revisions.Named(ctx, requested)
	return err != nil || !found || p.Revisions.Compare(ctx, status.HeldRevision, to).Waits()
}
