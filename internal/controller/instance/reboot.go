package instance

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/health"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/instance/reboot"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// maxReboots is how often in a row a host is rebooted that goes on asking for it.
	maxReboots = 3
	// rebootsInARow is how long after a reboot another one counts as one more in a row, also when the
	// request was withdrawn in between: a host may withdraw it for a moment.
	rebootsInARow = time.Hour
	// rebootAgain is when to look whether a reboot is still asked for; that it is asked for anew is
	// an event.
	rebootAgain = time.Minute
)

// wantsReboot says whether a node that is well, or is not Ready, should be rebooted. One that was
// rebooted several times in a row and still asks is left alone.
func (w *walk) wantsReboot(ctx context.Context, found health.Finding) bool {
	status := &w.instance.Status
	if found.Node == nil || found.Outcome.Problem != nil && found.Outcome.Problem.Reason == contract.ReasonNodeForeign {
		return false
	}
	config, err := w.config(ctx)
	if err != nil {
		return false // a cached read fails only when the manager stops
	}
	why := reboot.WhyReboot(found.Node, config.Spec.Rollout.RebootWhenPending)
	last := status.LastRebootTime
	old := last == nil || w.now().Sub(last.Time) >= rebootsInARow
	if old && (why == "" || w.life.rebootWithdrawn && status.Reboot == nil) {
		status.Reboots, status.LastRebootTime = 0, nil
	}
	w.life.rebootWithdrawn = why == ""
	if why == "" {
		status.Reboot = nil
		return false
	}
	if status.Reboot == nil {
		status.Reboot = &v1alpha1.Reboot{Reason: why,
			Progress: v1alpha1.Progress{Step: v1alpha1.StepWaiting, Since: microless(w.now())}}
		if status.Reboots > 0 { // it has just been rebooted, and may need a moment to say that it is content
			next := microless(w.now().Add(policy.DisruptBackoff(status.Reboots, w.jitter())))
			status.Reboot.NextTime = &next
		}
	}
	status.Reboot.Reason = why
	return true
}

// rebootsFirst says that a node is to be rebooted although another version is desired: its rollout
// is halted, and whoever asks for a reboot now need not wait until somebody knows why.
func (w *walk) rebootsFirst(ctx context.Context, found health.Finding) bool {
	if found.Update == nil || found.Updating {
		return false
	}
	config, err := w.config(ctx)
	if err != nil || reboot.WhyReboot(found.Node, config.Spec.Rollout.RebootWhenPending) == "" {
		return false
	}
	list := &v1alpha1.WindowsInstanceList{}
	if err = w.client.List(ctx, list); err != nil {
		return false // as above
	}
	all := make([]*v1alpha1.WindowsInstance, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return policy.Halted(found.Update.Version, config, all) != "" && w.wantsReboot(ctx, found)
}

// mayRebootNow says that the reboot that is wanted has neither to wait for its next try nor been
// tried too often.
func (w *walk) mayRebootNow() bool {
	status := &w.instance.Status
	return status.Reboots < maxReboots && (status.Reboot.NextTime == nil || !status.Reboot.NextTime.After(w.now()))
}

// rebootToo goes on with a reboot in the place that a node has taken for its update. Both are in
// one write, so the place is never free meanwhile.
func (w *walk) rebootToo(ctx context.Context, node *corev1.Node) (ctrl.Result, error) {
	w.instance.Status.Disruption = &v1alpha1.Disruption{Purpose: v1alpha1.DisruptionReboot, Since: microless(w.now())}
	w.claimed(ctx, v1alpha1.DisruptionReboot)
	logf.FromContext(ctx).Info("going on with a reboot", "node", node.Name, "reason", w.instance.Status.Reboot.Reason)
	w.tellTurn(ctx, v1alpha1.DisruptionReboot)
	return w.reboot(ctx, health.Finding{Node: node})
}

// reboot takes a node one step further through a reboot.
func (w *walk) reboot(ctx context.Context, found health.Finding) (ctrl.Result, error) {
	status := &w.instance.Status
	view, err := w.view(ctx, found.Node, v1alpha1.DisruptionReboot)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !journey.Begun(status.Reboot.Step) && status.Reboots >= maxReboots {
		w.report(ctx, journey.Wait(0, contract.ReasonRebootFutile,
			"node %s was rebooted %d times in a row, and a reboot is still asked for (%s)", found.Node.Name,
			status.Reboots, status.Reboot.Reason))
		return w.result(ctx, 0)
	}
	through := way{View: view, purpose: v1alpha1.DisruptionReboot, steps: w.journeys.reboot.Steps(),
		failed: w.rebootFailed, arrived: w.rebooted}
	through.at = func(step v1alpha1.Step) {
		if reboot := status.Reboot; step == v1alpha1.StepSwitching && reboot.BootID == "" {
			reboot.BootID = found.Node.Annotations[contract.BootIDAnnotation] // that it must end
		}
	}
	if result, on, err := w.resume(ctx, through); !on {
		return result, err
	}
	return w.along(ctx, through)
}

// rebootFailed is for a node that could not be drained, which goes back into service, and for a
// host that does not come back, which keeps its place and is waited for.
func (w *walk) rebootFailed(ctx context.Context, through way, problem *contract.Problem) (ctrl.Result, error) {
	status := &w.instance.Status
	if status.Reboot.Step != v1alpha1.StepDraining {
		if status.Reason != string(problem.Reason) {
			w.tellBack(ctx, through.purpose, problem)
		}
		w.report(ctx, journey.Wait(budgetRetry, problem.Reason, "%s", problem.Detail))
		return w.result(ctx, budgetRetry)
	}
	w.tellBack(ctx, through.purpose, problem)
	w.ended(through.purpose, string(problem.Reason))
	return w.rest(ctx, through, problem)
}

// rebooted ends the way: another boot, and the node is well.
func (w *walk) rebooted(ctx context.Context, through way) (ctrl.Result, error) {
	if back := w.parts.Nodes.ReturnToService(ctx, through.Node); !back.IsDone() {
		return w.result(ctx, back.After)
	}
	status := &w.instance.Status
	w.ended(through.purpose, "Proven")
	logf.FromContext(ctx).Info("node has rebooted", "node", status.NodeName, "reason", status.Reboot.Reason)
	w.tellArrived(ctx, through.purpose, fmt.Sprintf("node %s has rebooted and is Ready", status.NodeName))
	now := microless(w.now())
	status.Reboots, status.LastRebootTime = status.Reboots+1, &now
	status.Reboot, status.DrainTime, status.Phase = nil, nil, v1alpha1.PhaseReady
	w.arrived()
	w.report(ctx, journey.Done())
	return w.result(ctx, rebootAgain)
}
