package instance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/health"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/instance/reboot"
	"github.com/windows-nodes/wmco/internal/policy"
)

// disruption is a journey that takes a place in the rollout budget: to another revision, or through a
// reboot.
type disruption interface {
	// Next goes on until something is to be waited for, saved, or done by another. A repeated call goes
	// on from the status.
	Next(ctx context.Context, view *journey.View) (journey.Outcome, error)
	// Granted notes in the status what begins with a place.
	Granted(status *v1alpha1.WindowsInstanceStatus)
}

// disrupt takes a node further through an upgrade or a reboot.
func (c *reconciliation) disrupt(ctx context.Context, to disruption, found health.Finding) (ctrl.Result, error) {
	view, err := c.view(ctx, found)
	if err != nil {
		return ctrl.Result{}, err
	}
	for range maxSteps {
		outcome, err := to.Next(ctx, view)
		if err != nil {
			return ctrl.Result{}, err
		}
		if outcome.Then == journey.AskForPlace {
			if outcome = c.askForPlace(ctx, to, view, outcome); outcome.IsDone() {
				continue
			}
		}
		c.note(ctx, outcome)
		switch outcome.Then {
		case journey.Save:
			if err = c.record.save(ctx); err != nil {
				return ctrl.Result{}, err
			}
			continue
		case journey.JoinAgain:
			return joining{c}.run(ctx)
		case journey.RebootToo:
			to = &c.journeys.reboot
			c.rebootToo(ctx, view)
			continue
		}
		if is(outcome, contract.ReasonRebootTimedOut) && c.isUp(ctx) {
			return c.joinInstead(ctx, view.Node, outcome.Problem)
		}
		// What it waits for may have no end, while the node goes down or its daemon dies.
		outcome.After = policy.Soonest(outcome.After, found.Outcome.After)
		if outcome.IsUnreported {
			return c.result(ctx, outcome.After)
		}
		c.report(ctx, outcome)
		return c.await(ctx, view.Node, outcome, outcome.Quiet)
	}
	return ctrl.Result{RequeueAfter: journey.CallRetry}, nil
}

// dialPause is how often a host is dialled that did not come back from a reboot in time.
const dialPause = 5 * time.Minute

// isUp dials a host that did not come back from a reboot in time. One that accepts a login did, and only its node is
// down. The connection stays, for the join.
func (c *reconciliation) isUp(ctx context.Context) bool {
	now := c.now()
	if now.Sub(c.life.dialledAt) < dialPause {
		return false
	}
	c.life.dialledAt = now
	work, ended := c.interruptible(ctx, c.life)
	defer ended()
	return c.parts.Access.Dial(work, c.instance, &c.life.session).IsDone()
}

// joinInstead joins a host again whose node is down after a reboot. If it is in the same boot still then, the reboot
// begins anew.
func (c *reconciliation) joinInstead(ctx context.Context, node *corev1.Node,
	why *contract.Problem) (ctrl.Result, error) {
	if err := c.journeys.reboot.Withdraw(ctx, node); err != nil {
		return ctrl.Result{}, err
	}
	logf.FromContext(ctx).Info("joining again", "reason", why.Reason, "detail", why.Detail)
	c.instance.Status.Phase, c.instance.Status.Reboot.Step = v1alpha1.PhasePending, v1alpha1.StepWaiting
	return joining{c}.run(ctx)
}

// maxSteps bounds one reconcile; a journey has a dozen steps.
const maxSteps = 50

func (c *reconciliation) view(ctx context.Context, found health.Finding) (*journey.View, error) {
	config, err := c.config(ctx)
	if err != nil {
		return nil, err
	}
	status := &c.instance.Status
	view := &journey.View{Instance: c.instance, Saved: &c.record.saved.Status, Node: found.Node,
		Bounds: boundsOf(config), Change: found.Update, Jitter: c.jitter(),
		RebootDue: c.journeys.reboot.IsDue(status, found.Node, config.Spec.Rollout.RebootWhenPending)}
	if desired, _, err := c.parts.Desired.Current(ctx); err == nil {
		view.Desired = &desired
	}
	return view, nil
}

// note reports an outcome's events and metrics.
func (c *reconciliation) note(ctx context.Context, outcome journey.Outcome) {
	c.recorder.record(ctx, c.instance, outcome.Events...)
	if place := outcome.Released; place != nil {
		c.meters.disrupted.WithLabelValues(string(place.Purpose), place.Result).
			Observe(c.now().Sub(place.Since).Seconds())
	}
	if outcome.IsRequested {
		c.life.requestedAt = c.now()
	}
}

// askForPlace asks for a place in the rollout budget for a journey. It is done when it is there.
func (c *reconciliation) askForPlace(ctx context.Context, to disruption, view *journey.View,
	asks journey.Outcome) journey.Outcome {
	log, place, answer := logf.FromContext(ctx), asks.Place, journey.Outcome{}
	verdict, err := c.place.take(ctx, place.Purpose, place.Revision,
		func() { to.Granted(&c.instance.Status) })
	switch {
	case err != nil:
		answer = journey.Wait(journey.CallRetry, contract.ReasonAPICallFailed,
			"taking a place in the rollout budget: %v", err)
	case verdict.Allowed:
		log.Info("node was granted a place in the rollout budget", "node", view.Node.Name, "purpose", place.Purpose,
			"why", verdict.Why)
		c.recorder.record(ctx, c.instance, journey.StartedEvent(place.Purpose, &c.instance.Status)...)
		if update := c.instance.Status.Update; update != nil && update.Step == v1alpha1.StepSwitching {
			c.life.requestedAt = c.now()
		}
		return journey.Done()
	case verdict.Reason == contract.ReasonRolloutHalted && place.Last.Detail != "":
		answer = journey.Wait(budgetRetry, place.Last.Reason, "%s", place.Last.Detail) // which says more
	case verdict.Reason != "":
		answer = journey.Wait(budgetRetry, verdict.Reason, "%s: %s", place.Waits, verdict.Why)
	default:
		log.V(1).Info("node waits for its turn", "node", view.Node.Name, "purpose", place.Purpose, "why", verdict.Why)
		answer = journey.Wait(budgetRetry, contract.ReasonBudgetExhausted, "%s for the rollout budget: %s", place.Waits,
			verdict.Shown())
	}
	answer.Then, answer.Quiet = journey.AskForPlace, asks.Quiet
	return answer
}

// rebootToo goes on with a reboot in the place that a node has taken for its upgrade. Both are in one
// write, so the place is never free meanwhile.
func (c *reconciliation) rebootToo(ctx context.Context, view *journey.View) {
	status := &c.instance.Status
	if !c.journeys.reboot.Observe(status, view.Node, true, c.life.rebootWithdrawn, view.Jitter) {
		c.place.release() // nobody asks for it any longer
		return
	}
	status.Disruption.Purpose, status.Disruption.Revision = v1alpha1.DisruptionReboot, ""
	c.journeys.reboot.Granted(status)
	logf.FromContext(ctx).Info("going on with a reboot", "node", view.Node.Name, "reason", status.Reboot.Reason)
	c.recorder.record(ctx, c.instance, journey.StartedEvent(v1alpha1.DisruptionReboot, status)...)
}

// wantsReboot says whether a node that is well, or is not Ready, should be rebooted.
func (c *reconciliation) wantsReboot(ctx context.Context, node *corev1.Node) bool {
	config, err := c.config(ctx)
	if err != nil {
		return false // a cached read fails only when the manager stops
	}
	pending, wasWithdrawn := config.Spec.Rollout.RebootWhenPending, c.life.rebootWithdrawn
	c.life.rebootWithdrawn = reboot.WhyReboot(node, pending) == ""
	return c.journeys.reboot.Observe(&c.instance.Status, node, pending, wasWithdrawn, c.jitter())
}

// rebootsFirst says that a node is to be rebooted although another revision is desired: its rollout
// is halted, and whoever asks for a reboot now need not wait until somebody knows why. One that has rebooted already
// has that ended first, or what is asked for while it waits for the revision would pass for that reboot.
func (c *reconciliation) rebootsFirst(ctx context.Context, found health.Finding) bool {
	if found.Update == nil || found.Updating {
		return false
	}
	if ready, _ := journey.NodeReady(found.Node); ready && reboot.HasRebooted(c.instance.Status.Reboot, found.Node) {
		return true
	}
	config, err := c.config(ctx)
	if err != nil || reboot.WhyReboot(found.Node, config.Spec.Rollout.RebootWhenPending) == "" {
		return false
	}
	halted, err := c.halted(ctx, found.Update.Revision)
	return err == nil && halted != "" && c.wantsReboot(ctx, found.Node)
}

// halted says in words why no other node may be taken to a revision; empty when one may.
func (r *Reconciler) halted(ctx context.Context, revision string) (why string, err error) {
	if revision == "" {
		return "", nil
	}
	config, err := r.config(ctx)
	if err != nil {
		return "", err
	}
	list := &v1alpha1.WindowsInstanceList{}
	if err = r.client.List(ctx, list); err != nil {
		return "", fmt.Errorf("listing WindowsInstances: %w", err)
	}
	return policy.Halted(revision, config, list.Items), nil
}

// bounds are the user's, or the defaults.
func (r *Reconciler) bounds(ctx context.Context) (journey.Bounds, error) {
	config, err := r.config(ctx)
	return boundsOf(config), err
}

func boundsOf(config *v1alpha1.WindowsMachineConfig) journey.Bounds {
	bounds := journey.DefaultBounds()
	if config == nil {
		return bounds
	}
	for _, one := range []struct {
		wanted *metav1.Duration
		bound  *time.Duration
	}{{config.Spec.Rollout.DrainTimeout, &bounds.Drain}, {config.Spec.Rollout.SettleTime, &bounds.Settle},
		{config.Spec.Rollout.VerifyTimeout, &bounds.Verify},
		{config.Spec.Rollout.UnavailableAfter, &bounds.Unavailable}} {
		if one.wanted != nil {
			*one.bound = one.wanted.Duration
		}
	}
	return bounds
}
