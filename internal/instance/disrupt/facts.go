package disrupt

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// stageRetry is how often the operator checks a daemon that fetches its payload. Normally, a report comes earlier.
const stageRetry = time.Minute

// isDownUnreported reports whether a node was not Ready even before the operator requested the revision, and its daemon
// has reported nothing about the request. In this case, the host may be off, and the revision is not the cause.
func (d *Disrupt) isDownUnreported(view *View) bool {
	update, node := view.activity(), view.Node
	down := d.Observed.NotReady(node)
	return update.Step == v1alpha1.StepSwitching && view.Instance.Status.IsRequested() && !down.IsZero() &&
		down.Began.Before(d.stepSince(view).Began) && refused(node, update.Revision) == nil &&
		node.Annotations[contract.RevisionAnnotation] != update.Revision
}

// isUnresponsive reports whether the daemon may have died before the request for the revision: kubelet works, but the
// daemon has reported nothing about this revision, not even that it has fetched the payload.
func isUnresponsive(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) bool {
	update := status.Activity
	ready, _ := journey.NodeReady(node)
	return update.Step == v1alpha1.StepSwitching && status.IsRequested() && ready &&
		!journey.DoesNotHold(node) && node.Annotations[contract.RevisionAnnotation] != update.Revision &&
		node.Annotations[contract.StagedAnnotation] != update.Revision
}

// isUndrained reports whether a node must be drained before the operator requests the revision. A drain in an earlier
// reconcile doesn't count, because new pods may have started since.
func (d *Disrupt) isUndrained(ctx context.Context, view *View) bool {
	update := view.Instance.Status.Upgrade()
	return update != nil && update.Step == v1alpha1.StepSwitching && view.drain == nil &&
		requestedOf(view.Node) != "" && requestedOf(view.Node) != update.Revision && d.drains(ctx, view)
}

// The method `drains` reports whether the upgrade or reboot needs a drain. For an upgrade, drains compares the new
// revision with both the previous and the last requested revision, because the host may be between these two.
func (d *Disrupt) drains(ctx context.Context, view *View) bool {
	activity := view.activity()
	if activity.Kind == v1alpha1.ActivityReboot {
		return true
	}
	to := view.Desired
	if to == nil || to.Revision != activity.Revision {
		named, found, err := d.Revisions.Named(ctx, activity.Revision)
		if err != nil || !found {
			return true
		}
		to = &named
	}
	held, requested := view.Instance.Status.HeldRevision, requestedOf(view.Node)
	return d.Revisions.Compare(ctx, held, *to).Drains ||
		requested != "" && requested != held && d.Revisions.Compare(ctx, requested, *to).Drains
}

// lacksPayload reports whether a node waits for its upgrade without the payload, because its daemon can't fetch the
// payload or has received nothing.
func (d *Disrupt) lacksPayload(ctx context.Context, view *View, staging policy.StagingFacts) bool {
	update, desired := view.activity(), view.Desired
	return update.Step == v1alpha1.StepWaiting && desired != nil && desired.Revision == update.Revision &&
		!staging.IsStaged && (staging.IsStageRequested || !staging.CanStage) &&
		d.Revisions.Compare(ctx, view.Instance.Status.DesiredRevision, *desired).Payload
}

// `quiet` returns for how long a wait is not reported. If only services restart, a short wait needs no report.
func (d *Disrupt) quiet(ctx context.Context, view *View) time.Duration {
	if d.drains(ctx, view) {
		return 0
	}
	return journey.QuietPeriod + view.Bounds.Settle
}

func (d *Disrupt) facts(ctx context.Context, view *View) policy.UpgradeFacts {
	activity := view.activity()
	f := policy.UpgradeFacts{
		HasSlot:    view.Instance.Status.HasSlot(),
		DrainFacts: d.DrainFacts(ctx, &view.Instance.Status, view.Node, view.Bounds, view.drain),
		StepSince:  d.stepSince(view), VerifyTimeout: verifyTimeout(view), DaemonTimeout: d.DaemonTimeout,
		Drains: d.drains(ctx, view),
	}
	f.IsUndrained = d.isUndrained(ctx, view)
	if activity.Kind == v1alpha1.ActivityReboot {
		rebootFacts(view, &f)
	} else {
		d.upgradeFacts(ctx, view, &f)
	}
	lacks := (*contract.Problem)(nil)
	switch activity.Step {
	case v1alpha1.StepVerifying:
		lacks = d.lacks(view)
		f.IsSettled = lacks == nil && d.settles(view) <= 0
	case v1alpha1.StepRollingBack:
		lacks = d.lacksBack(view, contract.ReasonUpdateFailed, "")
		f.IsRequested = requestedOf(view.Node) == view.Instance.Status.HeldRevision
	}
	if lacks != nil {
		f.Lacks = lacks.Reason
		d.Observed.While(view.Instance, well, false)
	}
	return f
}

// well is a key in observed.Log. Its record shows since when a node in verification has been healthy.
const well = "well"

// The method `settles` returns for how much longer a healthy node must stay Ready. If this time is over, the result is
// 0 or less. If the node was not Ready for a moment, the time begins again.
func (d *Disrupt) settles(view *View) time.Duration {
	since := d.Observed.Since(view.Instance, well, policy.ReadyCondition(view.Node).LastTransitionTime.Time)
	return view.Bounds.Settle - d.Now().Sub(since.Seen)
}

func (d *Disrupt) upgradeFacts(ctx context.Context, view *View, f *policy.UpgradeFacts) {
	status, node := &view.Instance.Status, view.Node
	update := status.Activity
	f.StagingFacts, f.NothingSince = stagingFacts(update, node), d.nothingSince(view)
	f.HasPrevious = journey.HasPrevious(status)
	view.isOverSSH = status.HasSlot() && view.isOverSSH || d.isStuck(view) || d.lacksPayload(ctx, view, f.StagingFacts)
	f.OverSSH = view.isOverSSH
	f.IsSwitched = status.IsRequested() || d.HasLeft(ctx, status, status.DesiredRevision)
	f.IsRequested, f.IsApplied = view.isRequested, node.Annotations[contract.RevisionAnnotation] == update.Revision
	f.IsDownUnreported, f.IsUnresponsive = d.isDownUnreported(view), isUnresponsive(status, node)
	why := refused(node, update.Revision)
	f.Refused = why != nil && !passes(why)
}

func verifyTimeout(view *View) time.Duration {
	if view.activity().Kind == v1alpha1.ActivityReboot {
		return max(view.Bounds.Verify, rebootVerifyTimeout)
	}
	return view.Bounds.Verify
}

// isStuck reports whether the daemon does not respond, and the upgrade has not begun yet.
func (d *Disrupt) isStuck(view *View) bool {
	status := &view.Instance.Status
	problem, _ := d.Daemons.Unresponsive(view.Instance, view.Node)
	return problem != nil && !status.Activity.Begun()
}

// Fetch is a daemon's progress with its payload, according to its last reports.
type Fetch struct {
	// missing is the number of missing programs in the daemon's last report. inVain reports that the daemon has
	// received nothing since that report.
	missing int
	inVain  bool
}

// nothingSince returns when the daemon stopped receiving its payload. If the daemon has not reported since the request,
// the result is the start of the step. While the daemon receives data, the result is zero. Only a falling number of
// missing programs counts as progress. If the daemon reports a problem of the host, such as a full disk, the result is
// zero, because the problem would occur over SSH as well. If data is missing again later, the earlier start counts.
func (d *Disrupt) nothingSince(view *View) policy.Since {
	why, fetch := view.Node.Annotations[contract.StageStatusAnnotation], view.Fetch
	missing := stillMissing(why)
	switch {
	case view.activity().Step != v1alpha1.StepStaging:
		*fetch = Fetch{}
	case why == "", inVain(why):
		fetch.inVain = true
	case missing > 0:
		fetch.inVain = fetch.inVain && fetch.missing > 0 && missing >= fetch.missing
		fetch.missing = missing
	}
	since := d.Observed.While(view.Instance, "nothing", fetch.inVain)
	switch {
	case why == "":
		return d.stepSince(view)
	case inVain(why), missing > 0:
		return since
	}
	return policy.Since{}
}

func (d *Disrupt) stepSince(view *View) policy.Since {
	return d.Observed.Since(view.Instance, "step", view.activity().Since.Time)
}

// stillMissing returns the number of missing programs in a daemon's report, or 0 if the report contains no number.
func stillMissing(why string) (n int) {
	if _, err := fmt.Sscanf(why, string(contract.ReasonStaging)+": %d of ", &n); err != nil {
		return 0
	}
	return n
}

func stagingFacts(update *v1alpha1.Activity, node *corev1.Node) policy.StagingFacts {
	return policy.StagingFacts{
		CanStage: journey.StagesItself(node) && policy.CheckSkew(journey.ReleaseOf(update.Revision),
			journey.ReleaseOf(node.Annotations[contract.RevisionAnnotation])) == "",
		IsStageRequested: node.Annotations[contract.StageAnnotation] == update.Revision,
		IsStaged:         node.Annotations[contract.StagedAnnotation] == update.Revision,
	}
}

// The method `lacks` returns why a node is not healthy at its revision or after its reboot, or nil.
func (d *Disrupt) lacks(view *View) *contract.Problem {
	update, node, kubelet := view.activity(), view.Node, ""
	if update.Kind == v1alpha1.ActivityReboot {
		return notBack(node)
	}
	if view.Desired != nil && view.Desired.Revision == update.Revision {
		kubelet = view.Desired.KubeletVersion
	}
	ready, message := journey.NodeReady(node)
	switch info := node.Status.NodeInfo.KubeletVersion; {
	case node.Annotations[contract.RevisionAnnotation] != update.Revision:
		return journey.Follows(node, update.Revision).Problem
	case journey.DoesNotHold(node):
		return contract.NewProblem(contract.ReasonRevisionPending, "node %s has revision %q, and it does not hold%s",
			node.Name, update.Revision, journey.ApplyStatus(node))
	case !ready:
		return contract.NewProblem(contract.ReasonNodeNotReady, "node %s: %s", node.Name, message)
	case !sameVersion(info, kubelet):
		return contract.NewProblem(contract.ReasonRevisionPending, "kubelet of node %s is %.50q and should be %q",
			node.Name, info, kubelet)
	}
	return nil
}

// lacksBack returns why a node is not healthy at its previous revision, or nil. The message includes `since`.
func (d *Disrupt) lacksBack(view *View, reason contract.Reason, since string) *contract.Problem {
	update, node, held := view.activity(), view.Node, view.Instance.Status.HeldRevision
	ready, message := journey.NodeReady(node)
	switch {
	case node.Annotations[contract.RevisionAnnotation] != held || refused(node, update.Revision) != nil:
		return contract.NewProblem(reason, "node %s goes back to revision %s%s%s, because: %s", node.Name, held,
			since, journey.ApplyStatus(node), update.Message)
	case !ready:
		return contract.NewProblem(reason, "node %s is back at revision %s and not Ready%s (%s), because: %s",
			node.Name, held, since, message, update.Message)
	}
	return nil
}

func (d *Disrupt) failure(view *View, row policy.UpgradeRow) *contract.Problem {
	update, node := view.activity(), view.Node
	switch update.Step {
	case v1alpha1.StepStaging:
		return contract.NewProblem(row.Reason, "node %s does not get the payload of revision %s: %.300s", node.Name,
			update.Revision, node.Annotations[contract.StageStatusAnnotation])
	case v1alpha1.StepDraining:
		return journey.NotDrained(node, view.drain)
	}
	if update.Kind == v1alpha1.ActivityReboot {
		return rebootFailure(view)
	}
	if why := refused(node, update.Revision); why != nil && !passes(why) && update.Step == v1alpha1.StepSwitching {
		return contract.NewProblem(row.Reason, "node %s went back by itself: %s", node.Name, why)
	}
	if d.isDownUnreported(view) {
		return contract.NewProblem(row.Reason, "node %s has not been Ready since %s, and its daemon did not respond "+
			"within %s", node.Name, d.Observed.NotReady(node).Began.UTC().Format(time.RFC3339), view.Bounds.Verify)
	}
	return contract.NewProblem(row.Reason, "%s, after %s", d.lacks(view).Detail, view.Bounds.Verify)
}

func (d *Disrupt) wait(ctx context.Context, view *View, row policy.UpgradeRow) journey.Outcome {
	activity, node, outcome := view.activity(), view.Node, journey.Outcome{}
	untilLate := d.Left(d.stepSince(view), verifyTimeout(view))
	switch activity.Step {
	case v1alpha1.StepStaging:
		outcome = d.fetches(view, row.Reason)
	case v1alpha1.StepDraining:
		outcome = *view.drain
	case v1alpha1.StepRollingBack:
		return d.goesBack(view, row.Reason)
	case v1alpha1.StepSwitching:
		outcome = switches(view)
		outcome.After = policy.Soonest(outcome.After, untilLate)
	default:
		if lacks := d.lacks(view); lacks != nil {
			outcome = journey.Wait(untilLate, lacks.Reason, "%s", lacks.Detail)
			break
		}
		is := "is at revision " + activity.Revision
		if activity.Kind == v1alpha1.ActivityReboot {
			is = "has rebooted"
		}
		outcome = journey.Wait(d.settles(view), row.Reason, "node %s %s and has to stay Ready for %s", node.Name, is,
			view.Bounds.Settle)
	}
	outcome.Quiet = d.quiet(ctx, view)
	return outcome
}

func switches(view *View) journey.Outcome {
	if view.activity().Kind == v1alpha1.ActivityReboot {
		return reboots(view)
	}
	return journey.Follows(view.Node, view.activity().Revision)
}

func (d *Disrupt) fetches(view *View, reason contract.Reason) journey.Outcome {
	update, node, after := view.activity(), view.Node, stageRetry
	why, detail := node.Annotations[contract.StageStatusAnnotation], ""
	if why != "" {
		detail = fmt.Sprintf(": %.300s", why)
	}
	if since := d.nothingSince(view); !since.IsZero() {
		after = min(d.Left(since, d.DaemonTimeout), stageRetry)
	}
	return journey.Wait(after, reason, "node %s fetches revision %s%s", node.Name, update.Revision, detail)
}

// goesBack returns the wait until a node is healthy at its previous revision. This wait has no time limit, because
// there is no other revision to try. If the wait takes too long, goesBack only reports this. The node keeps its slot,
// because the node is out of service anyway.
func (d *Disrupt) goesBack(view *View, reason contract.Reason) journey.Outcome {
	update, since := view.activity(), ""
	_, left := d.Daemons.Unresponsive(view.Instance, view.Node)
	if reason == contract.ReasonRollbackTimedOut {
		since = " since " + update.Since.UTC().Format(time.RFC3339)
	} else if bound := view.Bounds.Verify - d.Now().Sub(d.stepSince(view).Began); left == 0 || bound < left {
		left = bound
	}
	problem := d.lacksBack(view, reason, since)
	outcome := journey.Wait(left, problem.Reason, "%s", problem.Detail)
	if reason == contract.ReasonRollbackTimedOut && view.Instance.Status.Reason() != string(reason) {
		outcome = outcome.With(journey.FailedEvent(v1alpha1.ActivityUpgrade, problem))
	}
	return outcome
}

// inVain reports whether the daemon says that it receives nothing, for example because of a firewall.
func inVain(why string) bool {
	reason, _, _ := strings.Cut(why, ":")
	return reason == string(contract.ReasonPayloadIncomplete)
}
