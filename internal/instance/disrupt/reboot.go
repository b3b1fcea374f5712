package disrupt

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

const (
	// rebootVerifyTimeout is the minimum time limit of a reboot: servers with much memory need 10 minutes.
	rebootVerifyTimeout = 20 * time.Minute
	// MaxReboots is the maximum number of consecutive reboots of a host that still requests a reboot.
	MaxReboots = 3
	// If a host requests a reboot within rebootsInARow after its last reboot, the two reboots are consecutive. This
	// applies even if the host withdrew its request in between: the withdrawal may last only a moment.
	rebootsInARow = time.Hour
	// againRetry is the pause before the next check for a request. A new request also causes an event.
	againRetry = time.Minute
)

// Sources of reboot requests.
const (
	rebootRequired  = "Required"  // the Node's annotation "reboot-required"
	rebootRequested = "Requested" // the Node's annotation "reboot"
	rebootPending   = "Pending"   // Windows has a pending reboot, and spec.rollout.rebootWhenPending is set
)

// WhyReboot returns the source of a request for a reboot, or "". If pending is true, a request by Windows is a source
// as well. If the daemon reports no boot ID, the result is "", because a reboot could not be verified.
func WhyReboot(node *corev1.Node, pending bool) string {
	asked := func(annotation string) bool { _, ok := node.Annotations[annotation]; return ok }
	switch {
	case node.Annotations[contract.BootIDAnnotation] == "":
		return ""
	case asked(contract.RebootRequiredAnnotation):
		return rebootRequired
	case asked(contract.RebootRequestedAnnotation):
		return rebootRequested
	case pending && asked(contract.RebootPendingAnnotation):
		return rebootPending
	}
	return ""
}

// Reboots counts the consecutive reboots of a host since the operator started. After MaxReboots, the operator doesn't
// reboot the host again, even if a reboot is still requested.
type Reboots struct {
	Count int32
	// Last is when the last reboot ended.
	Last time.Time
}

// inARow returns the number of consecutive reboots. If the last reboot was long before now, the result is 0.
func (r Reboots) inARow(now time.Time) int32 {
	if now.Sub(r.Last) >= rebootsInARow {
		return 0
	}
	return r.Count
}

// ObserveReboot reports whether a reboot of a node is requested, and records the request in the status. The reboot
// replaces an upgrade that waits.
func (d *Disrupt) ObserveReboot(instance *v1alpha1.WindowsInstance, node *corev1.Node, pending bool,
	jitter float64, reboots *Reboots) bool {
	status, why := &instance.Status, WhyReboot(node, pending)
	switch {
	case why == "" && status.Reboot() != nil:
		status.Activity = nil
	case why != "" && status.Reboot() == nil:
		status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityReboot, Step: v1alpha1.StepWaiting,
			Since: journey.Seconds(d.Now())}
		reboots.Count = reboots.inARow(d.Now())
		if reboots.Count > 0 { // after a reboot, the request may take a moment to disappear
			status.Activity.NextTime = new(journey.Seconds(d.Now().Add(policy.DisruptBackoff(reboots.Count, jitter))))
		}
	}
	return why != ""
}

// IsRebootDue reports whether a node may be rebooted now.
func (d *Disrupt) IsRebootDue(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node, pending bool,
	reboots Reboots) bool {
	reboot := status.Reboot()
	switch {
	case WhyReboot(node, pending) == "":
		return false
	case reboot == nil:
		return reboots.inARow(d.Now()) == 0
	}
	return reboots.Count < MaxReboots && !HasRebooted(reboot, node) &&
		(reboot.NextTime == nil || !reboot.NextTime.After(d.Now()))
}

// HasRebooted reports whether a host has rebooted although its reboot counts as failed. This happens if the node came
// back only after the host joined again.
func HasRebooted(reboot *v1alpha1.Activity, node *corev1.Node) bool {
	return reboot != nil && !reboot.Begun() && isAnotherBoot(reboot, node)
}

// IsToVerify reports whether a reboot must be verified before other work, because the host joined again after the
// request. Before the next try, this may be true even without a new boot ID, because the daemon may still report it.
func IsToVerify(reboot *v1alpha1.Activity, node *corev1.Node, now time.Time) bool {
	if reboot == nil || reboot.Begun() || reboot.BootID == "" {
		return false
	}
	return isAnotherBoot(reboot, node) || reboot.Reason != string(contract.ReasonDaemonUnresponsive) &&
		reboot.NextTime != nil && reboot.NextTime.After(now)
}

// isAnotherBoot reports whether the host has rebooted since the request.
func isAnotherBoot(reboot *v1alpha1.Activity, node *corev1.Node) bool {
	boot := node.Annotations[contract.BootIDAnnotation]
	return reboot.BootID != "" && boot != "" && reboot.BootID != boot
}

// needsNoReboot finishes a reboot that has happened, and refuses another reboot after MaxReboots reboots.
func (d *Disrupt) needsNoReboot(ctx context.Context, view *View) (outcome journey.Outcome, ends bool) {
	status, node := &view.Instance.Status, view.Node
	ready, message := journey.NodeReady(node)
	switch hasRebooted := HasRebooted(status.Activity, node); {
	case hasRebooted && !ready:
		return journey.Wait(0, contract.ReasonNodeNotReady, "node %s: %s", node.Name, message), true
	case hasRebooted: // finishing the reboot disrupts no pods
		return d.finishReboot(ctx, view), true
	case !status.Activity.Begun() && view.Reboots.Count >= MaxReboots:
		return journey.Wait(0, contract.ReasonRebootIneffective,
			"node %s was rebooted %d times in a row, and a reboot is still requested (%s)", node.Name,
			view.Reboots.Count, WhyReboot(node, true)), true
	}
	return journey.Done(), false
}

// rebootFacts adds the facts about a reboot. A reboot whose request could not be written counts as requested, so that
// the time limit of reboots applies.
func rebootFacts(view *View, f *policy.UpgradeFacts) {
	reboot, node := view.activity(), view.Node
	f.IsApplied = isAnotherBoot(reboot, node)
	f.IsRequested = f.IsApplied || view.unwritten != nil ||
		node.Annotations[contract.RebootApprovedAnnotation] == reboot.BootID
	ready, _ := journey.NodeReady(node)
	f.IsSwitched = reboot.Step == v1alpha1.StepVerifying || reboot.Step == v1alpha1.StepSwitching && !ready
}

func reboots(view *View) journey.Outcome {
	if view.unwritten != nil {
		return journey.RetryWrite(view.unwritten)
	}
	if refused := journey.RebootRefused(view.Node); refused != nil {
		return journey.Wait(0, refused.Reason, "%s", refused.Detail)
	}
	return journey.Wait(0, contract.ReasonRebooting, "node %s reboots", view.Node.Name)
}

func notBack(node *corev1.Node) *contract.Problem {
	if ready, message := journey.NodeReady(node); !ready {
		return contract.NewProblem(contract.ReasonRebooting, "node %s has rebooted and is not Ready: %s", node.Name,
			message)
	}
	return nil
}

// rebootFailure returns why a reboot failed.
func rebootFailure(view *View) *contract.Problem {
	reboot, node := view.activity(), view.Node
	since, meanwhile := reboot.Since.UTC().Format(time.RFC3339), reboots(view).Problem
	ready, _ := journey.NodeReady(node)
	switch {
	case reboot.Step == v1alpha1.StepVerifying:
		meanwhile = notBack(node)
	case ready && meanwhile.Reason == contract.ReasonRebooting:
		return contract.NewProblem(contract.ReasonDaemonUnresponsive,
			"the daemon of node %s was to reboot its host at %s, and did not", node.Name, since)
	case ready:
		return meanwhile
	}
	return contract.NewProblem(contract.ReasonRebootTimedOut, "%s, since %s", meanwhile.Detail, since)
}

// WithdrawReboot deletes the approval of a reboot. Otherwise, a daemon that comes back would reboot a node in service.
func (d *Disrupt) WithdrawReboot(ctx context.Context, node *corev1.Node) error {
	return d.Nodes.Annotate(ctx, node, map[string]string{contract.RebootApprovedAnnotation: ""})
}

// finishReboot deletes all requests, because one reboot fulfils every earlier request, and returns the node to service.
func (d *Disrupt) finishReboot(ctx context.Context, view *View) journey.Outcome {
	if err := d.Nodes.Annotate(ctx, view.Node, map[string]string{contract.RebootApprovedAnnotation: "",
		contract.RebootRequiredAnnotation: "", contract.RebootRequestedAnnotation: ""}); err != nil {
		return journey.RetryWrite(err)
	}
	if outcome := d.Nodes.ReturnToService(ctx, view.Node); !outcome.IsDone() {
		return outcome
	}
	status := &view.Instance.Status
	logf.FromContext(ctx).Info("node has rebooted", "node", status.NodeName)
	outcome := journey.Done().With(journey.DoneEvent(v1alpha1.ActivityReboot,
		fmt.Sprintf("node %s has rebooted and is Ready", status.NodeName)))
	status.Activity = nil
	view.Reboots.Count, view.Reboots.Last = view.Reboots.Count+1, d.Now()
	outcome.Released = journey.Release(status, v1alpha1.ActivityReboot, journey.ResultVerified)
	outcome.After = againRetry
	return outcome
}
