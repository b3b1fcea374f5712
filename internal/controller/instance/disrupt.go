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
	"github.com/windows-nodes/wmco/internal/instance/disrupt"
	"github.com/windows-nodes/wmco/internal/instance/health"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// dialPause is the pause between two attempts of isUp to dial the host.
const dialPause = 5 * time.Minute

// isUp dials a host that did not come back from a reboot in time. If the host accepts the login, only its node is down.
// In this case, the connection stays open for the join.
func (c *reconciliation) isUp(ctx context.Context) bool {
	now := c.now()
	if now.Sub(c.memory.dialledAt) < dialPause {
		return false
	}
	c.memory.dialledAt = now
	work, ended := c.interruptible(ctx, c.memory)
	defer ended()
	return c.parts.Access.Dial(work, c.instance, &c.memory.session).IsDone()
}

// If a node is down after a reboot, joinInstead joins its host again. A host that hasn't rebooted yet reboots later.
func (c *reconciliation) joinInstead(ctx context.Context, node *corev1.Node,
	why *contract.Problem) (ctrl.Result, error) {
	if err := c.journeys.disrupt.WithdrawReboot(ctx, node); err != nil {
		return ctrl.Result{}, err
	}
	logf.FromContext(ctx).Info("joining again", "reason", why.Reason, "detail", why.Detail)
	c.instance.Status.Phase, c.instance.Status.Activity.Step = v1alpha1.PhasePending, v1alpha1.StepWaiting
	return joining{c}.run(ctx)
}

func (c *reconciliation) view(ctx context.Context, found health.Finding) (*disrupt.View, error) {
	config, err := c.config(ctx)
	if err != nil {
		return nil, err
	}
	status := &c.instance.Status
	view := &disrupt.View{Controller: c, Instance: c.instance, Saved: &c.record.saved.Status, Node: found.Node,
		Bounds: boundsOf(config), Change: found.Update, Fetch: &c.memory.fetch, Jitter: c.jitter(),
		Reboots: &c.memory.reboots,
		RebootDue: c.journeys.disrupt.IsRebootDue(status, found.Node, config.Spec.Rollout.RebootWhenPending,
			c.memory.reboots)}
	if desired, _, err := c.parts.Desired.Current(ctx); err == nil {
		view.Desired = &desired
	}
	return view, nil
}

func (c *reconciliation) Save(ctx context.Context) error { return c.record.save(ctx) }

func (c *reconciliation) Take(ctx context.Context, granted func()) (policy.Verdict, error) {
	return c.slot.take(ctx, granted)
}

// Note reports the events and metrics of an outcome.
func (c *reconciliation) Note(ctx context.Context, outcome journey.Outcome) {
	c.recorder.record(ctx, c.instance, outcome.Events...)
	if slot := outcome.Released; slot != nil {
		c.meters.disrupted.WithLabelValues(string(slot.Kind), slot.Result).
			Observe(c.now().Sub(slot.Since).Seconds())
	}
	if outcome.IsRequested {
		c.memory.requestedAt = c.now()
	}
}

func (c *reconciliation) wantsReboot(ctx context.Context, node *corev1.Node) bool {
	config, err := c.config(ctx)
	if err != nil {
		return false // reading from the cache fails only when the manager stops
	}
	return c.journeys.disrupt.ObserveReboot(c.instance, node, config.Spec.Rollout.RebootWhenPending, c.jitter(),
		&c.memory.reboots)
}

// rebootsFirst reports whether a reboot comes before the change to the desired revision. If the rollout is halted, a
// requested reboot comes first, because the halt may last long. If a host joined again because it did not come back
// from a reboot, the operator must verify this reboot first. Otherwise, this reboot would count as the result of a
// later request.
func (c *reconciliation) rebootsFirst(ctx context.Context, found health.Finding) bool {
	if found.Update == nil || found.Updating {
		return false
	}
	if ready, _ := journey.NodeReady(found.Node); ready &&
		disrupt.IsToVerify(c.instance.Status.Reboot(), found.Node, c.now()) {
		return true
	}
	config, err := c.config(ctx)
	if err != nil || disrupt.WhyReboot(found.Node, config.Spec.Rollout.RebootWhenPending) == "" {
		return false
	}
	halted, err := c.halted(ctx, found.Update.Revision)
	return err == nil && halted != "" && c.wantsReboot(ctx, found.Node)
}

// The method `halted` returns why no more nodes may change to a revision, or "" if they may.
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

// bounds returns the time limits from the settings. If the user has not set a limit, it returns the default.
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
