package instance

import (
	"context"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// way is what a node goes that takes a place in the rollout budget: to another version, or through
// a reboot.
type way struct {
	*journey.View
	purpose v1alpha1.DisruptionPurpose
	steps   []journey.Step
	// at notes in the status, beside the step that begins, what must be known before anything is
	// done.
	at func(step v1alpha1.Step)
	// failed is for a leg that failed, arrived for the end of the last one.
	failed  func(ctx context.Context, to way, problem *contract.Problem) (ctrl.Result, error)
	arrived func(ctx context.Context, to way) (ctrl.Result, error)
}

// along walks the steps from the present step on, until one waits or fails. What a leg does is noted
// before it does it.
func (w *walk) along(ctx context.Context, to way) (ctrl.Result, error) {
	status := &w.instance.Status
	present := slices.IndexFunc(to.steps, func(leg journey.Step) bool {
		return leg.Name == progress(status,
			to.purpose).Step
	})
	for _, leg := range to.steps[max(0, present):] {
		if here := progress(status, to.purpose); here.Step != leg.Name {
			here.Step, here.Since = leg.Name, microless(w.now())
		}
		to.at(leg.Name)
		if asks := leg.Name == v1alpha1.StepWaiting || leg.Name == v1alpha1.StepProving; !asks && !w.noted(to.purpose) {
			if err := w.save(ctx); err != nil {
				return ctrl.Result{}, err
			}
		}
		outcome := leg.Run(ctx, w.instance, to.View)
		switch {
		case outcome.IsFailed():
			return to.failed(ctx, to, outcome.Problem)
		case outcome.IsWaiting():
			w.report(ctx, outcome)
			return w.await(ctx, to.Node, outcome, to.quiet(status))
		case leg.Name == v1alpha1.StepWaiting && to.purpose == v1alpha1.DisruptionUpdate && status.Update.OverSSH:
			logf.FromContext(ctx).Info("updating over SSH", "version", status.Update.Revision)
			status.Update.Step, status.Update.Since = v1alpha1.StepSwitching, microless(w.now())
			status.Phase = v1alpha1.PhasePending
			return w.join(ctx)
		}
	}
	return to.arrived(ctx, to)
}

// noted says that the API server has what whoever takes over must know before a step is taken. What
// else changed in the status is written when it is reported.
func (w *walk) noted(purpose v1alpha1.DisruptionPurpose) bool {
	type essence struct {
		step          v1alpha1.Step
		place         bool
		version, boot string
		switched      bool
	}
	of := func(status *v1alpha1.WindowsInstanceStatus) (e essence) {
		if here := progress(status, purpose); here != nil {
			e.step = here.Step
		}
		e.place, e.version = status.Disruption != nil, status.DesiredRevision
		e.switched = status.Update != nil && status.Update.SwitchTime != nil
		if status.Reboot != nil {
			e.boot = status.Reboot.BootID
		}
		return e
	}
	return of(&w.instance.Status) == of(&w.saved.Status)
}

// quiet is how long nothing is said of a node whose services are only started anew: until it is
// time to wonder.
func (to way) quiet(status *v1alpha1.WindowsInstanceStatus) time.Duration {
	if update := status.Update; to.purpose != v1alpha1.DisruptionUpdate || update == nil || update.Drains {
		return 0
	}
	return promptly + to.Bounds.Settle
}

// resume has a node that lost its place to a pause take one again, before it goes on. One that was
// not touched yet but for its pods waits for it in service. on says that it may go on.
func (w *walk) resume(ctx context.Context, to way) (result ctrl.Result, on bool, err error) {
	status := &w.instance.Status
	here := progress(status, to.purpose)
	if here == nil || !journey.Begun(here.Step) || status.Disruption != nil {
		return ctrl.Result{}, true, nil
	}
	if here.Step == v1alpha1.StepDraining && !switched(status, to.purpose) {
		if outcome := w.parts.Nodes.ReturnToService(ctx, to.Node); !outcome.IsDone() {
			result, err = w.result(ctx, outcome.After)
			return result, false, err
		}
		here.Step, here.Since, status.DrainTime, status.Phase = v1alpha1.StepWaiting, microless(w.now()), nil,
			v1alpha1.PhaseReady
		return ctrl.Result{}, true, nil
	}
	if outcome := to.Claim(ctx); !outcome.IsDone() {
		w.report(ctx, outcome)
		result, err = w.result(ctx, outcome.After)
		return result, false, err
	}
	return ctrl.Result{}, true, nil
}

// rest puts a node back into service until the next try.
func (w *walk) rest(ctx context.Context, to way, why *contract.Problem) (ctrl.Result, error) {
	if outcome := w.parts.Nodes.ReturnToService(ctx, to.Node); !outcome.IsDone() {
		return w.result(ctx, outcome.After)
	}
	status := &w.instance.Status
	here := progress(status, to.purpose)
	here.Tries++
	wait := policy.DisruptBackoff(here.Tries, w.jitter())
	next := microless(w.now().Add(wait))
	here.Step, here.Since, here.NextTime, here.ReadySince = v1alpha1.StepWaiting, microless(w.now()), &next, nil
	if update := status.Update; to.purpose == v1alpha1.DisruptionUpdate {
		update.SwitchTime, update.Message = nil, why.Detail
		update.Reason, update.Code = string(why.Reason), code(why.Reason)
	}
	status.Phase, status.DrainTime = v1alpha1.PhaseReady, nil
	w.arrived()
	w.report(ctx, journey.Wait(wait, why.Reason, "%s", why.Detail))
	return w.result(ctx, wait)
}

// progress is how far a node is on its way; nil when it is on none.
func progress(status *v1alpha1.WindowsInstanceStatus, purpose v1alpha1.DisruptionPurpose) *v1alpha1.Progress {
	switch {
	case purpose == v1alpha1.DisruptionUpdate && status.Update != nil:
		return &status.Update.Progress
	case purpose == v1alpha1.DisruptionReboot && status.Reboot != nil:
		return &status.Reboot.Progress
	}
	return nil
}

// switched says that a host was told to have the version that it goes to.
func switched(status *v1alpha1.WindowsInstanceStatus, purpose v1alpha1.DisruptionPurpose) bool {
	update := status.Update
	return purpose == v1alpha1.DisruptionUpdate &&
		(update.SwitchTime != nil || status.DesiredRevision == update.Revision)
}
