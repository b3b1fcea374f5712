package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// preflightKept is how long the result of a preflight check is kept, unless a user deletes it earlier.
const preflightKept = time.Hour

// checking is the reconcile of a host that is only checked and doesn't join.
type checking struct{ *reconciliation }

// run checks a host once. It deletes the instance after preflightKept.
func (c checking) run(ctx context.Context) (ctrl.Result, error) {
	status := &c.instance.Status
	if done := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPreflightPassed); done != nil {
		return c.expire(ctx, done.LastTransitionTime.Add(preflightKept).Sub(c.now()))
	}
	c.status.enter(v1alpha1.PhasePreflight, true)
	if err := c.record.save(ctx); err != nil {
		return ctrl.Result{}, err
	}
	outcome, err := c.unlisted(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if outcome.IsDone() {
		work, ended := c.interruptible(ctx, c.memory)
		defer ended()
		outcome = c.journeys.join.Check(work, c.instance, &c.memory.session)
		if errors.Is(context.Cause(work), errLeaving) {
			return c.result(ctx, 0) // the event about the deletion is already queued
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctrl.Result{}, ctx.Err()
	case outcome.IsWaiting():
		c.report(ctx, outcome)
		return c.result(ctx, outcome.After)
	case outcome.IsFailed():
		c.status.timed(v1alpha1.PhasePreflight)
		c.report(ctx, outcome)
		// Set this condition even if the host can't be reached, because users of the check read only this condition.
		c.status.condition(v1alpha1.ConditionPreflightPassed, metav1.ConditionFalse, outcome.Problem.Reason,
			outcome.Problem.Detail)
	default:
		c.status.passed(v1alpha1.PhasePreflight)
		outcome = journey.Wait(preflightKept, contract.ReasonPreflightOnly,
			"the host can join: it meets every requirement")
		c.report(ctx, outcome)
	}
	return c.result(ctx, preflightKept)
}

// The method `unlisted` fails if another instance has the same address, because the check must not disrupt that
// instance's join. If two preflight-only instances have the same address, only the older one continues.
func (c checking) unlisted(ctx context.Context) (journey.Outcome, error) {
	var all v1alpha1.WindowsInstanceList
	if err := c.client.List(ctx, &all, client.InNamespace(c.instance.Namespace)); err != nil {
		return journey.Outcome{}, fmt.Errorf("listing WindowsInstances: %w", err)
	}
	for i := range all.Items {
		other := &all.Items[i]
		same := strings.EqualFold(other.Spec.Address, c.instance.Spec.Address) && other.UID != c.instance.UID
		if same && (!other.Spec.PreflightOnly || isOlder(other, c.instance)) {
			return journey.Fail(contract.NewProblem(contract.ReasonHostListed,
				"instance %s has the host %s already, and is in phase %s", other.Name,
				c.instance.Spec.Address, cmp.Or(other.Status.Phase, v1alpha1.PhasePending))), nil
		}
	}
	return journey.Done(), nil
}

func isOlder(one, other *v1alpha1.WindowsInstance) bool {
	if !one.CreationTimestamp.Equal(&other.CreationTimestamp) {
		return one.CreationTimestamp.Before(&other.CreationTimestamp)
	}
	return one.UID < other.UID
}

// expire deletes the instance after preflightKept. `left` is the time until then.
func (c checking) expire(ctx context.Context, left time.Duration) (ctrl.Result, error) {
	if left > 0 {
		return c.result(ctx, left)
	}
	err := c.client.Delete(ctx, c.instance, client.Preconditions{UID: &c.instance.UID})
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("deleting an instance whose host was checked: %w", err)
	}
	return ctrl.Result{}, nil
}
