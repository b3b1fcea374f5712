package instance

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/lifecycle"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// maxReboots is how often in a row a host is rebooted that goes on asking for it.
	maxReboots = 3
	// rebootAgain is when to look whether a reboot is still asked for; that it is asked for anew is an event.
	rebootAgain = time.Minute
)

// wantsReboot says whether a node that is well, or is not Ready, should be rebooted. One that was rebooted several times in a row and still asks is left alone.
func (w *walk) wantsReboot(ctx context.Context, care lifecycle.Care) bool {
	status := &w.instance.Status
	if care.Node == nil || care.Outcome.Problem != nil && care.Outcome.Problem.Reason == contract.ReasonNodeForeign {
		return false
	}
	config, err := w.config(ctx)
	if err != nil {
		return false // a cached read fails only when the manager stops
	}
	why := lifecycle.WhyReboot(care.Node, config.Spec.Rollout.RebootWhenPending)
	if why == "" {
		status.Reboot, status.Reboots = nil, 0
		return false
	}
	if status.Reboot == nil {
		status.Reboot = &v1alpha1.Reboot{Reason: why, Step: v1alpha1.StepWaiting, Since: microless(w.now())}
		if status.Reboots > 0 { // it has just been rebooted, and may need a moment to say that it is content
			next := microless(w.now().Add(policy.DisruptBackoff(status.Reboots, w.jitter())))
			status.Reboot.NextTime = &next
		}
	}
	status.Reboot.Reason = why
	return true
}

// reboot takes a node one step further through a reboot.
func (w *walk) reboot(ctx context.Context, care lifecycle.Care) (ctrl.Result, error) {
	status := &w.instance.Status
	crossing, err := w.crossing(ctx, care.Node, v1alpha1.DisruptionReboot)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !underWay(status.Reboot.Step) && status.Reboots >= maxReboots {
		w.report(ctx, lifecycle.Wait(0, contract.ReasonRebootFutile, "node %s was rebooted %d times in a row, and a reboot is still asked for (%s)", care.Node.Name, status.Reboots, status.Reboot.Reason))
		return w.result(ctx, 0)
	}
	if status.Reboot.Step == v1alpha1.StepDraining && status.Disruption == nil { // a pause took its place away before anything was done
		if back := w.walker.Return(ctx, crossing.Node); !back.IsDone() {
			return w.result(ctx, back.After)
		}
		status.Reboot.Step, status.Reboot.Since, status.DrainTime, status.Phase = v1alpha1.StepWaiting, microless(w.now()), nil, v1alpha1.PhaseReady
	}
	if underWay(status.Reboot.Step) && status.Disruption == nil { // a pause took its place away
		if outcome := crossing.Claim(ctx); !outcome.IsDone() {
			w.report(ctx, outcome)
			return w.result(ctx, outcome.After)
		}
	}
	reached := false
	for _, leg := range w.walker.Through() {
		if reached = reached || leg.Name == status.Reboot.Step; !reached {
			continue
		}
		if err := w.rebootAt(ctx, crossing, leg.Name); err != nil {
			return ctrl.Result{}, err
		}
		outcome := leg.Run(ctx, w.instance, crossing)
		switch {
		case outcome.IsFailed():
			return w.rebootFailed(ctx, crossing, outcome)
		case outcome.IsWaiting():
			w.report(ctx, outcome)
			return w.result(ctx, outcome.After)
		}
	}
	return w.rebooted(ctx, crossing)
}

// rebootAt notes the step that begins, and before the reboot, the boot that it must end.
func (w *walk) rebootAt(ctx context.Context, crossing *lifecycle.Crossing, step v1alpha1.Step) error {
	reboot := w.instance.Status.Reboot
	if reboot.Step != step {
		reboot.Step, reboot.Since = step, microless(w.now())
	}
	if step == v1alpha1.StepSwitching && reboot.BootID == "" {
		reboot.BootID = crossing.Node.Annotations[contract.BootIDAnnotation]
	}
	return w.save(ctx)
}

// rebootFailed is for a node that could not be drained, which goes back into service, and for a host that does not come back, which keeps its place and is
// waited for.
func (w *walk) rebootFailed(ctx context.Context, crossing *lifecycle.Crossing, outcome lifecycle.Outcome) (ctrl.Result, error) {
	status, problem := &w.instance.Status, outcome.Problem
	if status.Reboot.Step != v1alpha1.StepDraining {
		if status.Reason != string(problem.Reason) {
			w.tellBack(ctx, v1alpha1.DisruptionReboot, problem)
		}
		w.report(ctx, lifecycle.Wait(budgetRetry, problem.Reason, "%s", problem.Detail))
		return w.result(ctx, budgetRetry)
	}
	w.tellBack(ctx, v1alpha1.DisruptionReboot, problem)
	w.ended(v1alpha1.DisruptionReboot, string(problem.Reason))
	if back := w.walker.Return(ctx, crossing.Node); !back.IsDone() {
		return w.result(ctx, back.After)
	}
	status.Reboot.Tries++
	wait := policy.DisruptBackoff(status.Reboot.Tries, w.jitter())
	next := microless(w.now().Add(wait))
	status.Reboot.Step, status.Reboot.Since, status.Reboot.NextTime = v1alpha1.StepWaiting, microless(w.now()), &next
	status.Phase, status.DrainTime = v1alpha1.PhaseReady, nil
	w.arrived()
	w.report(ctx, lifecycle.Wait(wait, problem.Reason, "%s", problem.Detail))
	return w.result(ctx, wait)
}

// rebooted ends the way: another boot, and the node is well.
func (w *walk) rebooted(ctx context.Context, crossing *lifecycle.Crossing) (ctrl.Result, error) {
	if back := w.walker.Return(ctx, crossing.Node); !back.IsDone() {
		return w.result(ctx, back.After)
	}
	status := &w.instance.Status
	w.ended(v1alpha1.DisruptionReboot, "Proven")
	logf.FromContext(ctx).Info("node has rebooted", "node", status.NodeName, "reason", status.Reboot.Reason)
	w.tellArrived(ctx, v1alpha1.DisruptionReboot, fmt.Sprintf("node %s has rebooted and is Ready", status.NodeName))
	status.Reboots++
	status.Reboot, status.DrainTime, status.Phase = nil, nil, v1alpha1.PhaseReady
	w.arrived()
	w.report(ctx, lifecycle.Done())
	return w.result(ctx, rebootAgain)
}
