package instance

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/health"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// across takes a node one step further on its way to another version.
func (w *walk) across(ctx context.Context, found health.Finding) (ctrl.Result, error) {
	status := &w.instance.Status
	if found.Update != nil && !found.Update.Waits() { // pods don't feel it, and the host has all that it needs
		return w.move(ctx, found)
	}
	view, err := w.view(ctx, found.Node, v1alpha1.DisruptionUpdate)
	if err != nil {
		return ctrl.Result{}, err
	}
	to := way{View: view, purpose: v1alpha1.DisruptionUpdate, at: w.at, failed: w.turnBack, arrived: w.proven}
	if result, on, err := w.resume(ctx, to); !on {
		return result, err
	}
	if err = w.drainAgain(ctx, to); err != nil {
		return ctrl.Result{}, err
	}
	if desired := w.aim(ctx, found); status.Update.Revision == desired.Version {
		view.Kubelet = desired.KubeletVersion
	}
	if status.Update.Step == v1alpha1.StepGoingBack {
		return w.goBack(ctx, to)
	}
	to.steps = w.journeys.upgrade.Steps(status.Update.Drains)
	return w.along(ctx, to)
}

// drainAgain has a node drained that is about to be switched and was not told yet, by the API
// server itself: it may be back in service since its pods were taken for lost.
func (w *walk) drainAgain(ctx context.Context, to way) error {
	status := &w.instance.Status
	update := status.Update
	told := to.Node.Annotations[contract.DesiredRevisionAnnotation]
	if update == nil || update.Step != v1alpha1.StepSwitching || !update.Drains || told == update.Revision {
		return nil
	}
	node := &corev1.Node{}
	if err := w.gate.Live.Get(ctx, types.NamespacedName{Name: to.Node.Name}, node); err != nil {
		return fmt.Errorf("reading node %s: %w", to.Node.Name, err)
	}
	if told = node.Annotations[contract.DesiredRevisionAnnotation]; told != update.Revision && told != "" {
		update.Step, update.Since, update.SwitchTime = v1alpha1.StepDraining, microless(w.now()), nil
		status.DesiredRevision = told
	}
	return nil
}

// aim sets out for the desired version, or turns to a newer one where the node is. What it gives
// back has no version while none is published.
func (w *walk) aim(ctx context.Context, found health.Finding) (desired struct{ Version, KubeletVersion string }) {
	status := &w.instance.Status
	now, _, err := w.parts.Desired.Current(ctx)
	if err == nil {
		desired.Version, desired.KubeletVersion = now.Version, now.KubeletVersion
	}
	update := status.Update
	switch {
	case update == nil || found.Update != nil && update.Revision != desired.Version:
		status.Update = &v1alpha1.Update{
			Revision: found.Update.Version, From: found.Update.From, Drains: found.Update.Drains,
			Progress: v1alpha1.Progress{Step: v1alpha1.StepStaging, Since: microless(w.now())},
		}
		if !found.Update.Payload {
			status.Update.Step = v1alpha1.StepWaiting
		}
	case err == nil && update.Revision != desired.Version: // it goes on from where it is, without a way back in between
		logf.FromContext(ctx).Info("going on to a newer version", "version", desired.Version, "instead",
			update.Revision)
		on := w.parts.Revisions.Compare(ctx, update.Revision, now)
		status.Update = &v1alpha1.Update{
			Revision: desired.Version, From: update.From, Drains: update.Drains || on.Drains,
			Progress: v1alpha1.Progress{Step: v1alpha1.StepStaging, Since: microless(w.now())},
		}
		if !on.Payload {
			status.Update.Step = v1alpha1.StepWaiting
		}
	}
	return desired
}

// move lets the daemon go to a version at once.
func (w *walk) move(ctx context.Context, found health.Finding) (ctrl.Result, error) {
	w.gate.Leave(w.waits())
	w.instance.Status.Update = nil
	if err := w.journeys.upgrade.Move(ctx, w.instance, found.Node, found.Update.Version); err != nil {
		return ctrl.Result{}, err
	}
	w.life.told = w.now()
	// in the words that its Node's event brings again, which are then no news
	follows := journey.Follows(found.Node, found.Update.Version)
	w.report(ctx, follows)
	return w.await(ctx, found.Node, follows, promptly)
}

// view is what a step works with.
func (w *walk) view(ctx context.Context, node *corev1.Node,
	purpose v1alpha1.DisruptionPurpose) (*journey.View, error) {
	bounds, err := w.bounds(ctx)
	if err != nil {
		return nil, err
	}
	return &journey.View{
		Node: node, Bounds: bounds, Claim: func(ctx context.Context) journey.Outcome {
			return w.takePlace(ctx, node,
				purpose)
		},
	}, nil
}

// bounds are the user's, or the defaults.
func (r *Reconciler) bounds(ctx context.Context) (journey.Bounds, error) {
	bounds := journey.DefaultBounds()
	config, err := r.config(ctx)
	if err != nil {
		return bounds, err
	}
	for _, one := range []struct {
		wanted *metav1.Duration
		bound  *time.Duration
	}{{config.Spec.Rollout.DrainTimeout, &bounds.Drain}, {config.Spec.Rollout.SettleTime, &bounds.Settle},
		{config.Spec.Rollout.ProofTimeout, &bounds.Proof},
		{config.Spec.Rollout.UnavailableAfter, &bounds.Unavailable}} {
		if one.wanted != nil {
			*one.bound = one.wanted.Duration
		}
	}
	return bounds, nil
}

// takePlace asks for a place in the rollout budget, unless the next try is not due yet.
func (w *walk) takePlace(ctx context.Context, node *corev1.Node, purpose v1alpha1.DisruptionPurpose) journey.Outcome {
	status := &w.instance.Status
	if status.Disruption != nil {
		return journey.Done()
	}
	what, next, last := "", status.NextAttemptTime, journey.Outcome{}
	if update := status.Update; update != nil && purpose == v1alpha1.DisruptionUpdate {
		what, next = fmt.Sprintf("version %s is desired and waits", update.Revision), update.NextTime
		last = journey.Wait(0, cmp.Or(contract.Reason(update.Reason), contract.ReasonRevisionPending), "%s",
			update.Message)
	} else if reboot := status.Reboot; reboot != nil {
		what, next = "node "+node.Name+" is to be rebooted and waits", reboot.NextTime
		last = journey.Wait(0, contract.ReasonRebooting, "node %s was rebooted just now, and a reboot is still "+
			"asked for", node.Name)
		if reboot.Tries > 0 {
			last = journey.Wait(0, contract.ReasonDrainBlocked, "node %s could not be drained for a reboot",
				node.Name)
		}
	}
	if next != nil {
		if last.After = next.Sub(w.now()); last.After > 0 {
			w.gate.Leave(w.waits())
			return last
		}
	}
	verdict, err := w.mayDisrupt(ctx, node, purpose)
	switch {
	case err != nil:
		return journey.Wait(apiRetry, contract.ReasonAPICallFailed, "taking a place in the rollout budget: %v", err)
	case verdict.Allowed:
		logf.FromContext(ctx).Info("node has its turn", "node", node.Name, "purpose", purpose, "why", verdict.Why)
		w.tellTurn(ctx, purpose)
		return journey.Done()
	case verdict.Reason == contract.ReasonRolloutHalted && last.Problem != nil && last.Problem.Detail != "":
		last.After = budgetRetry // what it failed at itself says more
		return last
	case verdict.Reason != "":
		return journey.Wait(budgetRetry, verdict.Reason, "%s: %s", what, verdict.Why)
	}
	logf.FromContext(ctx).V(1).Info("node waits for its turn", "node", node.Name, "purpose", purpose, "why",
		verdict.Why)
	return journey.Wait(budgetRetry, contract.ReasonRevisionPending, "%s for the rollout budget", what)
}

// apiRetry is for an API server that does not answer.
const apiRetry = 3 * time.Second

// claimed notes what begins with a place in the budget, in the same write.
func (w *walk) claimed(ctx context.Context, purpose v1alpha1.DisruptionPurpose) {
	status := &w.instance.Status
	now := microless(w.now())
	switch update, reboot := status.Update, status.Reboot; {
	case purpose == v1alpha1.DisruptionRemove:
		if status.Phase != v1alpha1.PhaseRemoving {
			w.turn(ctx)
		}
	case purpose == v1alpha1.DisruptionReboot && reboot != nil:
		status.Phase = v1alpha1.PhaseRebooting
		if !journey.Begun(reboot.Step) {
			reboot.Step, reboot.Since, reboot.NextTime = v1alpha1.StepDraining, now, nil
		}
	case update != nil && !update.OverSSH:
		status.Phase = v1alpha1.PhaseUpdating
		if journey.Begun(update.Step) {
			return
		}
		update.Step, update.Since, update.NextTime = v1alpha1.StepDraining, now, nil
		if !update.Drains {
			update.Step = v1alpha1.StepSwitching
			w.at(v1alpha1.StepSwitching)
			w.life.told = w.now()
		}
	}
}

// at notes, before the daemon is told, that from the switch on the host is to have the new version.
func (w *walk) at(step v1alpha1.Step) {
	if step != v1alpha1.StepSwitching {
		return
	}
	status := &w.instance.Status
	update := status.Update
	now := microless(w.now())
	if status.DesiredRevision != update.Revision {
		status.DesiredRevision = update.Revision
		update.SwitchTime, update.ReadySince = &now, nil
	}
	if update.SwitchTime == nil {
		update.SwitchTime = &now
	}
}

// turnBack is for a step that failed. A node that was not switched yet goes back into service and
// is tried again later, so that others go on. One that was has the previous version put back, if
// there is one that held; else it stays where it is, and goes on trying.
func (w *walk) turnBack(ctx context.Context, to way, problem *contract.Problem) (ctrl.Result, error) {
	status := &w.instance.Status
	update := status.Update
	update.Reason, update.Code, update.Message = string(problem.Reason), code(problem.Reason), problem.Detail
	switch {
	case !switched(status, to.purpose) && (update.From == "" || status.DesiredRevision == update.From):
		w.tellBack(ctx, to.purpose, problem)
		w.ended(to.purpose, string(problem.Reason))
		return w.rest(ctx, to, problem)
	case update.From == "" || update.From == update.Revision:
		w.report(ctx, journey.Wait(budgetRetry, problem.Reason, "%s", problem.Detail))
		return w.result(ctx, budgetRetry)
	}
	logf.FromContext(ctx).Info("going back", "version", update.Revision, "from", update.From, "reason", problem.Reason,
		"detail", problem.Detail)
	w.tellBack(ctx, to.purpose, problem)
	update.Step, update.Since, update.ReadySince = v1alpha1.StepGoingBack, microless(w.now()), nil
	status.DesiredRevision = update.From
	// Whoever decides next must know of it before the place is given back: that is what keeps a
	// second node from being taken there.
	if update.SwitchTime != nil { // the version was tried
		status.UpdateFailure = &v1alpha1.UpdateFailure{Revision: update.Revision, Code: update.Code,
			Message: update.Message, Time: microless(w.now())}
	}
	if err := w.save(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return w.goBack(ctx, to)
}

// goBack brings the previous version back, and then gives the place back.
func (w *walk) goBack(ctx context.Context, to way) (ctrl.Result, error) {
	outcome := w.journeys.upgrade.GoBack(ctx, w.instance, to.View)
	if !outcome.IsDone() {
		if overdue := string(contract.ReasonNotBack); outcome.Problem.Reason == contract.ReasonNotBack &&
			w.instance.Status.Reason != overdue {
			w.tellBack(ctx, to.purpose, outcome.Problem)
		}
		w.report(ctx, outcome)
		return w.result(ctx, outcome.After)
	}
	update := w.instance.Status.Update
	w.instance.Status.HeldRevision = update.From
	w.ended(to.purpose, "GoneBack")
	return w.rest(ctx, to, contract.NewProblem(contract.ReasonUpdateFailed,
		"node %s is back at version %s, because at %s: %s",
		to.Node.Name, update.From, update.Revision, update.Message))
}

// proven ends the way: the node is well at its version. One that is to be rebooted, too, goes on
// with that in its place, so that it is drained once.
func (w *walk) proven(ctx context.Context, to way) (ctrl.Result, error) {
	status := &w.instance.Status
	reboots := w.wantsReboot(ctx, health.Finding{Node: to.Node}) && w.mayRebootNow()
	if !reboots {
		if outcome := w.parts.Nodes.ReturnToService(ctx, to.Node); !outcome.IsDone() {
			return w.result(ctx, outcome.After)
		}
	}
	w.ended(to.purpose, "Proven")
	logf.FromContext(ctx).Info("node is at its new version", "node", status.NodeName, "version", status.Update.Revision)
	w.tellArrived(ctx, to.purpose, fmt.Sprintf("node %s is at version %s", status.NodeName, status.Update.Revision))
	if failure := status.UpdateFailure; failure != nil && failure.Revision != status.Update.From {
		status.UpdateFailure = nil
	}
	status.Revision, status.HeldRevision = status.Update.Revision, status.Update.Revision
	status.Update, status.Failures, status.DrainTime, status.Phase = nil, 0, nil, v1alpha1.PhaseReady
	if reboots {
		return w.rebootToo(ctx, to.Node)
	}
	w.arrived()
	w.report(ctx, journey.Done())
	return w.result(ctx, 0)
}

// skew says whether the operator may rely on what the node's daemon says. One that is too far away
// is walked into over SSH.
func (w *walk) skew(ctx context.Context) {
	if why := w.journeys.health.Skew(ctx, w.instance); why != "" {
		w.condition(v1alpha1.ConditionSkewSupported, metav1.ConditionFalse, contract.ReasonSkewUnsupported, why)
		return
	}
	if meta.FindStatusCondition(w.instance.Status.Conditions, v1alpha1.ConditionSkewSupported) != nil {
		w.condition(v1alpha1.ConditionSkewSupported, metav1.ConditionTrue, skewSupported,
			"the node's release is one that this operator knows")
	}
}

// skewSupported is the reason of a SkewSupported condition that is True.
const skewSupported contract.Reason = "Supported"

func code(reason contract.Reason) string { return fmt.Sprintf("W%d", reason.Number()) }
