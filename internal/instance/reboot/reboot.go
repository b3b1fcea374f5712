// Package reboot answers how a node is rebooted, and how the reboot is verified. The instance controller
// runs it. It never contacts a host: the daemon reboots it.
package reboot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Reboot takes a node through a reboot.
type Reboot struct{ *journey.Parts }

const (
	// rebootVerifyTimeout is the least time that a reboot has: servers with much memory take 10 minutes.
	rebootVerifyTimeout = 20 * time.Minute
	// MaxReboots is how often in a row a host is rebooted that goes on asking for it.
	MaxReboots = 3
	// rebootsInARow is how long after a reboot another one counts as one more in a row, also when the
	// request was withdrawn in between: a host may withdraw it for a moment.
	rebootsInARow = time.Hour
	// againRetry is when to look whether a reboot is still asked for; that it is asked for anew is an
	// event. awayRetry is a safety net, too.
	againRetry = time.Minute
	awayRetry  = time.Minute

	purpose = v1alpha1.DisruptionReboot
)

// WhyReboot says who requests a reboot of a node; empty when nobody does. A daemon that does not say in
// which boot it runs can't prove a reboot. pending says whether what Windows requests counts.
func WhyReboot(node *corev1.Node, pending bool) v1alpha1.RebootReason {
	asked := func(annotation string) bool { _, ok := node.Annotations[annotation]; return ok }
	switch {
	case node.Annotations[contract.BootIDAnnotation] == "":
		return ""
	case asked(contract.RebootRequiredAnnotation):
		return v1alpha1.RebootRequired
	case asked(contract.RebootRequestedAnnotation):
		return v1alpha1.RebootRequested
	case pending && asked(contract.RebootPendingAnnotation):
		return v1alpha1.RebootPending
	}
	return ""
}

// isBlocked says that a node that was rebooted several times in a row still asks, and is left alone.
func isBlocked(status *v1alpha1.WindowsInstanceStatus) bool { return status.Reboots >= MaxReboots }

// Observe notes in the status who requests a reboot of a node, and reports whether anybody does. wasWithdrawn
// says that nobody did when that was looked at last.
func (r *Reboot) Observe(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node, pending, wasWithdrawn bool,
	jitter float64) bool {
	why := WhyReboot(node, pending)
	last := status.LastRebootTime
	old := last == nil || r.Now().Sub(last.Time) >= rebootsInARow
	if old && (why == "" || wasWithdrawn && status.Reboot == nil) {
		status.Reboots, status.LastRebootTime = 0, nil
	}
	if why == "" {
		status.Reboot = nil
		return false
	}
	if status.Reboot == nil {
		status.Reboot = &v1alpha1.Reboot{
			Progress: v1alpha1.Progress{Step: v1alpha1.StepWaiting, Since: journey.Seconds(r.Now())}}
		if status.Reboots > 0 { // it has just been rebooted, and the request may take a moment to go
			next := journey.Seconds(r.Now().Add(policy.DisruptBackoff(status.Reboots, jitter)))
			status.Reboot.NextTime = &next
		}
	}
	status.Reboot.Reason = why
	return true
}

// IsDue reports whether a node may be rebooted now: somebody requests it, and the next try neither has to
// wait nor is one too many.
func (r *Reboot) IsDue(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node, pending bool) bool {
	if WhyReboot(node, pending) == "" || isBlocked(status) {
		return false
	}
	if status.Reboot == nil {
		return status.Reboots == 0
	}
	return !HasRebooted(status.Reboot, node) &&
		(status.Reboot.NextTime == nil || !status.Reboot.NextTime.After(r.Now()))
}

// HasRebooted says that a host whose node did not come back after the reboot, and that was joined again, has rebooted.
// No reboot, nil, is none.
func HasRebooted(reboot *v1alpha1.Reboot, node *corev1.Node) bool {
	return reboot != nil && !journey.Begun(reboot.Step) && isAnotherBoot(reboot, node)
}

// isAnotherBoot says that a node's daemon runs in another boot than the one that must end.
func isAnotherBoot(reboot *v1alpha1.Reboot, node *corev1.Node) bool {
	boot := node.Annotations[contract.BootIDAnnotation]
	return reboot.BootID != "" && boot != "" && !contract.SameBoot(reboot.BootID, boot)
}

// Granted notes what begins with a place in the budget, in the same write. The time of a step that lost its place to a
// pause begins anew: its daemon may not have been told what was decided then.
func (r *Reboot) Granted(status *v1alpha1.WindowsInstanceStatus) {
	status.Phase = v1alpha1.PhaseRebooting
	here := status.Reboot
	if here.Since = journey.Seconds(r.Now()); !journey.Begun(here.Step) {
		here.Step, here.NextTime = v1alpha1.StepDraining, nil
	}
}

func (r *Reboot) place(view *journey.View) journey.Place {
	name := view.Node.Name
	place := journey.Place{Purpose: purpose, Waits: "node " + name + " is to be rebooted and waits",
		Last: contract.NewProblem(contract.ReasonRebooting,
			"node %s was rebooted just now, and a reboot is still asked for", name)}
	switch reason := contract.Reason(view.Instance.Status.Reason); {
	case view.Instance.Status.Reboot.Tries == 0:
	case reason == contract.ReasonRebootFailed:
		place.Last = contract.NewProblem(reason, "Windows did not reboot the host of node %s", name)
	case reason == contract.ReasonDaemonUnresponsive:
		place.Last = contract.NewProblem(reason, "the daemon of node %s did not reboot its host", name)
	case reason == contract.ReasonAPICallFailed:
		place.Last = contract.NewProblem(reason, "the reboot of node %s could not be requested", name)
	default:
		place.Last = contract.NewProblem(contract.ReasonDrainBlocked, "node %s could not be drained for a reboot", name)
	}
	return place
}

// Next goes on until something is to be waited for or saved. The host is never contacted: the daemon
// reboots it when it is told to.
func (r *Reboot) Next(ctx context.Context, view *journey.View) (journey.Outcome, error) {
	status := &view.Instance.Status
	if HasRebooted(status.Reboot, view.Node) {
		return r.alreadyRebooted(ctx, view), nil
	}
	if !journey.Begun(status.Reboot.Step) && isBlocked(status) {
		return journey.Wait(0, contract.ReasonRebootIneffective,
			"node %s was rebooted %d times in a row, and a reboot is still asked for (%s)", view.Node.Name,
			status.Reboots, status.Reboot.Reason), nil
	}
	if kept := r.KeepsPlace(ctx, view, purpose, false, r.place); !kept.IsDone() || kept.Then != journey.Stop {
		return kept, nil
	}
	for {
		here := &status.Reboot.Progress
		noteBoot(status.Reboot, view.Node)
		if view.MustSave(purpose) {
			return journey.Outcome{Then: journey.Save}, nil
		}
		next, outcome := v1alpha1.StepDraining, journey.Done()
		switch here.Step {
		case v1alpha1.StepDraining:
			next, outcome = v1alpha1.StepSwitching, r.Evacuate(ctx, view.Instance, view)
		case v1alpha1.StepSwitching:
			next, outcome = v1alpha1.StepVerifying, r.restartHost(ctx, view.Instance, view)
		case v1alpha1.StepVerifying:
			if outcome = r.comeBack(ctx, view.Instance, view); outcome.IsDone() {
				return r.finish(ctx, view), nil
			}
		default:
			if !status.HasPlace() {
				return r.TakePlace(view, r.place(view)), nil
			}
		}
		switch {
		case outcome.IsFailed():
			return r.failed(ctx, view, outcome.Problem), nil
		case outcome.IsWaiting():
			return outcome, nil
		}
		r.ToStep(here, next)
	}
}

// noteBoot notes the boot that must end, by the name that the present daemon gives it.
func noteBoot(reboot *v1alpha1.Reboot, node *corev1.Node) {
	boot := node.Annotations[contract.BootIDAnnotation]
	if reboot.Step == v1alpha1.StepSwitching &&
		(reboot.BootID == "" || boot != "" && contract.SameBoot(reboot.BootID, boot)) {
		reboot.BootID = boot
	}
}

// failed is for a node that could not be drained, or did not go down, which goes back into service, and for a host that
// does not come back, which keeps its place and is waited for.
func (r *Reboot) failed(ctx context.Context, view *journey.View, problem *contract.Problem) journey.Outcome {
	status := &view.Instance.Status
	if problem.Reason != contract.ReasonRebootTimedOut {
		if err := r.Withdraw(ctx, view.Node); err != nil {
			return journey.RetryWrite(err)
		}
		boot := status.Reboot.BootID
		status.Reboot.BootID = ""
		outcome, isBack := r.TryLater(ctx, view, purpose, "", problem)
		if !isBack {
			return outcome
		}
		if problem.Reason == contract.ReasonDaemonUnresponsive {
			status.Reboot.UnansweredBootID = boot
		}
		return outcome.With(journey.FailedEvent(purpose, problem))
	}
	outcome := journey.Wait(awayRetry, problem.Reason, "%s", problem.Detail)
	if status.Reason != string(problem.Reason) {
		outcome = outcome.With(journey.FailedEvent(purpose, problem))
	}
	return outcome
}

// Withdraw takes back what was approved: a daemon that comes back later must not reboot a node that serves.
func (r *Reboot) Withdraw(ctx context.Context, node *corev1.Node) error {
	return r.Nodes.Annotate(ctx, node, map[string]string{contract.RebootApprovedAnnotation: ""})
}

// alreadyRebooted ends the journey of a node whose host has rebooted already: nobody is disrupted for that once more.
func (r *Reboot) alreadyRebooted(ctx context.Context, view *journey.View) journey.Outcome {
	if ready, message := journey.NodeReady(view.Node); !ready {
		return journey.Wait(0, contract.ReasonNodeNotReady, "node %s: %s", view.Node.Name, message)
	}
	if err := r.Nodes.Annotate(ctx, view.Node, asked()); err != nil {
		return journey.RetryWrite(err)
	}
	return r.finish(ctx, view)
}

// finish ends the journey: another boot, and the node is well.
func (r *Reboot) finish(ctx context.Context, view *journey.View) journey.Outcome {
	if outcome := r.Nodes.ReturnToService(ctx, view.Node); !outcome.IsDone() {
		return outcome
	}
	status := &view.Instance.Status
	logf.FromContext(ctx).Info("node has rebooted", "node", status.NodeName, "reason", status.Reboot.Reason)
	outcome := journey.Done().With(journey.DoneEvent(purpose, fmt.Sprintf("node %s has rebooted and is Ready",
		status.NodeName)))
	now := journey.Seconds(r.Now())
	status.Reboots, status.LastRebootTime = status.Reboots+1, &now
	status.Reboot = nil
	outcome.Released = journey.Release(status, purpose, journey.ResultVerified)
	outcome.After = againRetry
	return outcome
}

// restartHost tells the daemon of one boot to reboot, and waits for another boot. It fails, again
// and again, when the host does not come back in time.
func (r *Reboot) restartHost(ctx context.Context, instance *v1alpha1.WindowsInstance,
	view *journey.View) journey.Outcome {
	reboot, node := instance.Status.Reboot, view.Node
	if isAnotherBoot(reboot, node) {
		return journey.Done()
	}
	outcome := journey.Wait(0, contract.ReasonRebooting, "node %s reboots", node.Name)
	stayed := contract.NewProblem(contract.ReasonDaemonUnresponsive,
		"the daemon of node %s was to reboot its host at %s, and did not", node.Name,
		reboot.Since.UTC().Format(time.RFC3339))
	if refused := journey.RebootRefused(node); refused != nil {
		outcome, stayed = journey.Wait(0, refused.Reason, "%s", refused.Detail), refused
	}
	if node.Annotations[contract.RebootApprovedAnnotation] != reboot.BootID {
		if err := r.Nodes.Annotate(
			ctx, node, map[string]string{contract.RebootApprovedAnnotation: reboot.BootID}); err != nil {
			outcome = journey.RetryWrite(err)
			stayed = outcome.Problem
		}
	}
	outcome = r.back(reboot, view, outcome)
	if ready, _ := journey.NodeReady(node); ready && outcome.IsFailed() { // it never went down
		return journey.Fail(stayed)
	}
	return outcome
}

// comeBack waits until the node is Ready for the settling time, and then takes away what asked for
// the reboot. What Windows or a tool asks for after the boot is asked for anew.
func (r *Reboot) comeBack(ctx context.Context, instance *v1alpha1.WindowsInstance, view *journey.View) journey.Outcome {
	reboot, node := instance.Status.Reboot, view.Node
	if ready, message := journey.NodeReady(node); !ready {
		reboot.ReadySince = nil
		return r.back(reboot, view, journey.Wait(0, contract.ReasonRebooting,
			"node %s has rebooted and is not Ready: %s",
			node.Name, message))
	}
	var left time.Duration
	if reboot.ReadySince, left = r.Settles(node, reboot.ReadySince, view.Bounds.Settle); left > 0 {
		return journey.Wait(left, contract.ReasonSettling, "node %s has rebooted and has to stay Ready for %s",
			node.Name,
			view.Bounds.Settle)
	}
	// The cache must show it: who asks by what it still shows would have the host rebooted again.
	shown := false
	for annotation := range asked() {
		_, there := node.Annotations[annotation]
		shown = shown || there
	}
	if !shown {
		return journey.Done()
	}
	if err := r.Nodes.Annotate(ctx, node, asked()); err != nil {
		return journey.Retry(err)
	}
	return journey.Wait(journey.ConflictRetry, contract.ReasonSettling, "node %s has rebooted", node.Name)
}

// asked are the annotations that go after a reboot: one serves whoever asked before it.
func asked() map[string]string {
	return map[string]string{contract.RebootApprovedAnnotation: "", contract.RebootRequiredAnnotation: "",
		contract.RebootRequestedAnnotation: ""}
}

// back turns a wait for a host into a failure when it takes too long.
func (r *Reboot) back(reboot *v1alpha1.Reboot, view *journey.View, outcome journey.Outcome) journey.Outcome {
	left := r.Left(r.Observed.Since(view.Instance, "reboot", reboot.Since.Time),
		max(view.Bounds.Verify, rebootVerifyTimeout))
	if left <= 0 {
		return journey.Fail(contract.NewProblem(contract.ReasonRebootTimedOut, "%s, since %s", outcome.Problem.Detail,
			reboot.Since.UTC().Format(time.RFC3339)))
	}
	if outcome.After == 0 || left < outcome.After {
		outcome.After = left
	}
	return outcome
}
