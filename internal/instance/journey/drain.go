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
	// drainRetry is how often the pods of a draining node are looked at.
	drainRetry = 2 * time.Second
	// evictionLimit is how long one eviction may take. A webhook may take up to 30 s, and one that does not answer may
	// be ignored after that.
	evictionLimit = 35 * time.Second
	// evictionsAtOnce is how many pods are evicted at once, so that few slow ones do not hold the others.
	evictionsAtOnce = 16
	// questionLimit is how long the question for the owner of a pod may take.
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

// NotCordoned waits after a cordon that did not succeed. One that is refused for as long as the drain
// may take blocks it, as pods may.
func (p *Parts) NotCordoned(instance *v1alpha1.WindowsInstance, timeout time.Duration, err error) Outcome {
	if left := p.Left(p.drainSince(instance), timeout); IsRefused(err) && left <= 0 {
		return Wait(drainRetry, contract.ReasonDrainBlocked, "after %s: %v", timeout, err)
	}
	return RetryWrite(err)
}

// Drain evicts pods within their own grace periods and disruption budgets, a bounded step each time
// it is called.
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
	_ = group.Wait() // none fails: what came of each is noted
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

// podsLeft is what a drain remembers of pods, of which there may be any number.
type podsLeft struct {
	// now is when the drain looks, began when it looked first, and deadline when it is over.
	now, began, deadline time.Time
	count                int
	// blocked and ending name a few that are not let go, and that were told to end.
	blocked, ending []string
	// inGrace says that one of those has still time to end, for which the drain waits.
	inGrace bool
	// evictions are those that are to be made.
	evictions []*policyv1.Eviction
	// away is set once the API server does not answer; the others would wait for the same. mu guards it and blocked.
	mu   sync.Mutex
	away error
}

// see counts a pod that must go, and notes it for an eviction unless it goes already.
func (l *podsLeft) see(pod *corev1.Pod) {
	l.count++
	if pod.DeletionTimestamp != nil {
		l.ending = few(l.ending, pod.Namespace+"/"+pod.Name)
		l.inGrace = l.inGrace || policy.HoldsDrain(pod, l.began, l.deadline, l.now)
		return
	}
	// clones, which keep nothing else of the pod
	l.evictions = append(l.evictions, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: strings.Clone(pod.Namespace), Name: strings.Clone(pod.Name)},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(strings.Clone(string(pod.UID)))},
	})
}

// evict has a pod moved away. One that took its name meanwhile, on whatever node, stays.
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

// isReplaced says that the pod is gone and another has its name. Only the API server's words tell that from other
// conflicts, such as one about a disruption budget; both of its checks say "UID in".
func isReplaced(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID in")
}

// note keeps why a pod stays, or that the API server does not answer.
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

// block keeps why a pod stays.
func (l *podsLeft) block(pod metav1.Object, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blocked = few(l.blocked, fmt.Sprintf("%s/%s (%.200s)", pod.GetNamespace(), pod.GetName(), err.Error()))
}

// drainSince is when the drain of a host began. In an upgrade or a reboot, that is the time of the step. In a later
// join or a removal, it is the time of the place, but not before the deletion. Without any of these times, it is the
// first call.
func (p *Parts) drainSince(instance *v1alpha1.WindowsInstance) policy.Since {
	status, began := &instance.Status, time.Time{}
	switch activity := status.Activity; {
	case activity != nil && activity.Step == v1alpha1.StepDraining:
		began = activity.Since.Time
	case status.HasPlace():
		began = status.Disruption.Since.Time
	}
	if removed := instance.DeletionTimestamp; removed != nil && removed.After(began) {
		began = removed.Time
	}
	if began.IsZero() {
		return p.Observed.While(instance, "drain", true)
	}
	return p.Observed.Since(instance, "drain", began)
}

// IsAPIResponse says that the API server answered a request, even if with an error, rather than that it was not
// reached. An eviction that it refuses may be one of a disruption budget (429), of two over one pod (500), or of a
// webhook that denies it (4xx) or fails (500).
func IsAPIResponse(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && !apierrors.IsServiceUnavailable(err)
}

// IsRefused says that the API server refuses a write, and not because another came first.
func IsRefused(err error) bool { return IsAPIResponse(err) && !apierrors.IsConflict(err) }

// few adds a name and keeps the first few.
func few(names []string, name string) []string {
	const most = 5
	names = append(names, name)
	slices.Sort(names)
	return names[:min(most, len(names))]
}

// Evacuate cordons the node and moves its pods away. A node that has not been Ready for long has its
// pods told to end, and is not waited for: nobody there would say when they did. It fails when pods
// can't be moved in time, and when somebody uncordons the node meanwhile; but a node that was told
// to leave its revision already only goes on.
func (p *Parts) Evacuate(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	bounds Bounds) Outcome {
	between := p.HasLeft(ctx, instance.Status.Upgrade(), node.Annotations[contract.DesiredRevisionAnnotation])
	switch {
	case IsUncordoned(node) && between:
		return Done()
	case IsUncordoned(node):
		return Fail(contract.NewProblem(contract.ReasonUncordoned,
			"somebody uncordoned node %s while it was being drained", node.Name))
	}
	return emptied(p.IsOut(node, bounds), between, p.CordonAndDrain(ctx, instance, node, bounds.Drain))
}

// HasLeft reports whether a node whose daemon was told a revision is to leave the one that it held for one that needs a
// place. One that needs none, such as for another mirror, takes nothing out of service, whether the daemon has it or
// not. A revision that can't be read counts as one that does.
func (p *Parts) HasLeft(ctx context.Context, update *v1alpha1.Activity, told string) bool {
	switch {
	case update == nil || update.From == "" || told == update.From:
		return false
	case told == update.Revision:
		return true
	}
	to, found, err := p.Revisions.Named(ctx, told)
	return err != nil || !found || p.Revisions.Compare(ctx, update.From, to).Waits()
}

// emptied judges what a drain came to.
func emptied(out, between bool, outcome Outcome) Outcome {
	if outcome.IsDone() {
		return outcome
	}
	blocked := outcome.Problem.Reason == contract.ReasonDrainBlocked
	switch {
	case out && (blocked || outcome.Problem.Reason == contract.ReasonDraining), between && blocked:
		return Done()
	case blocked:
		return Fail(outcome.Problem)
	}
	return outcome
}
