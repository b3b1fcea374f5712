package upgrade

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

// stageRetry is a safety net: what the daemon says about staging is an event.
const stageRetry = time.Minute

// isRequested says that the revision that a host goes to was requested.
func isRequested(status *v1alpha1.WindowsInstanceStatus) bool {
	update := status.Update
	return update != nil && (update.SwitchTime != nil || status.DesiredRevision == update.Revision)
}

// isDownUnreported says that a node has not been Ready since its daemon was told the revision, and that
// the daemon has reported nothing of it: a host that is off fails at no revision.
func (u *Upgrade) isDownUnreported(view *journey.View) bool {
	update, node := view.Instance.Status.Update, view.Node
	down := u.Observed.NotReady(node)
	return update.Step == v1alpha1.StepSwitching && update.SwitchTime != nil && !down.IsZero() &&
		down.Began.Before(u.switchSince(view).Began) && refused(node, update.Revision) == nil &&
		node.Annotations[contract.RevisionAnnotation] != update.Revision
}

// isUnresponsive says that kubelet is well, and the daemon has reported nothing of the revision, not even that it has
// its payload: nobody knows whether it was alive before it was told.
func isUnresponsive(update *v1alpha1.Update, node *corev1.Node) bool {
	ready, _ := journey.NodeReady(node)
	return update.Step == v1alpha1.StepSwitching && update.SwitchTime != nil && ready &&
		!journey.DoesNotHold(node) && node.Annotations[contract.RevisionAnnotation] != update.Revision &&
		node.Annotations[contract.StagedAnnotation] != update.Revision
}

// isUndrained says that a node is about to be switched, and its daemon was not told yet: its pods were not drained in
// this reconcile, and others may have come since an earlier one.
func isUndrained(view *journey.View) bool {
	update := view.Instance.Status.Update
	return update != nil && update.Step == v1alpha1.StepSwitching && update.Drains && view.Drain == nil &&
		requestedOf(view.Node) != "" && requestedOf(view.Node) != update.Revision
}

// quiet is how long nothing is said of a node whose services are only started anew: until it is time
// to wonder.
func quiet(view *journey.View) time.Duration {
	if view.Instance.Status.Update.Drains {
		return 0
	}
	return journey.QuietPeriod + view.Bounds.Settle
}

func (u *Upgrade) facts(ctx context.Context, view *journey.View) policy.UpgradeFacts {
	status, node := &view.Instance.Status, view.Node
	update, requested := status.Update, node.Annotations[contract.DesiredRevisionAnnotation]
	staging := stagingFacts(update, node)
	f := policy.UpgradeFacts{
		HasPlace: status.HasPlace(), Drains: update.Drains,
		OverSSH:      u.isStuck(view) || update.OverSSH && !isHelped(status, node, staging),
		HasPrevious:  update.From != "" && update.From != update.Revision,
		StagingFacts: staging, DrainFacts: u.drainFacts(ctx, view), NothingSince: u.sinceNothing(view),
		StepSince: u.stepSince(view), SwitchSince: u.switchSince(view), VerifyTimeout: view.Bounds.Verify,
		DaemonTimeout: u.DaemonTimeout,
		IsSwitched:    isRequested(status) || u.HasLeft(ctx, update, status.DesiredRevision),
		IsRequested:   view.IsRequested, IsApplied: node.Annotations[contract.RevisionAnnotation] == update.Revision,
	}
	f.IsDownUnreported, f.IsUnresponsive = u.isDownUnreported(view), isUnresponsive(update, node)
	if why := refused(node, update.Revision); why != nil && !passes(why) {
		f.Refused = true
	}
	lacks := (*contract.Problem)(nil)
	switch update.Step {
	case v1alpha1.StepVerifying:
		lacks = u.lacks(view)
		_, left := u.Settles(node, update.ReadySince, view.Bounds.Settle)
		f.IsSettled = lacks == nil && left <= 0
	case v1alpha1.StepRollingBack:
		lacks, f.IsRequested = u.lacksBack(view, contract.ReasonUpdateFailed, ""), requested == update.From
	}
	if lacks != nil {
		f.Lacks = lacks.Reason
	}
	return f
}

// isStuck says that the daemon does not respond, so it would not make the switch.
func (u *Upgrade) isStuck(view *journey.View) bool {
	status := &view.Instance.Status
	problem, _ := u.Daemons.Unresponsive(view.Instance, view.Node)
	return problem != nil && status.Update.SwitchTime == nil && !journey.Begun(status.Update.Step)
}

// isHelped says that a host that was to be joined again, and has no place for that yet, has got
// what it lacked.
func isHelped(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node, staging policy.StagingFacts) bool {
	ready, _ := journey.NodeReady(node)
	return ready && staging.IsStaged && staging.CanStage && !status.HasPlace() &&
		!journey.Begun(status.Update.Step)
}

// nothingSince is since when the daemon gets nothing of its payload, or has not reported since it
// was told; zero while it gets something. That it fetches is no news of one that got nothing, until
// fewer programs are to come.
func (u *Upgrade) nothingSince(update *v1alpha1.Update, node *corev1.Node) time.Time {
	why, was := node.Annotations[contract.StageStatusAnnotation], update.NothingSince
	missing := stillMissing(why)
	switch {
	case why == "":
		return update.Since.Time
	case inVain(why) && was == nil:
		return journey.Seconds(u.Now()).Time
	case inVain(why), missing > 0 && missing >= update.Missing && was != nil && !was.Equal(&update.Since):
		return was.Time
	}
	return time.Time{}
}

func (u *Upgrade) sinceNothing(view *journey.View) policy.Since {
	dated := u.nothingSince(view.Instance.Status.Update, view.Node)
	if dated.IsZero() {
		return policy.Since{}
	}
	return u.Observed.Since(view.Instance, "nothing", dated)
}

// stepSince is since when the node is at its step; switchSince since when its daemon is to have the revision.
func (u *Upgrade) stepSince(view *journey.View) policy.Since {
	return u.Observed.Since(view.Instance, "step", view.Instance.Status.Update.Since.Time)
}

func (u *Upgrade) switchSince(view *journey.View) policy.Since {
	if began := view.Instance.Status.Update.SwitchTime; began != nil {
		return u.Observed.Since(view.Instance, "switch", began.Time)
	}
	return policy.Since{}
}

// noteNothing keeps since when the daemon gets nothing, and how many programs it lacked. What it reports
// of its host meanwhile counts only when the time is over.
func (u *Upgrade) noteNothing(view *journey.View) {
	update, node := view.Instance.Status.Update, view.Node
	since := u.nothingSince(update, node)
	missing := stillMissing(node.Annotations[contract.StageStatusAnnotation])
	switch was := update.NothingSince; {
	case update.Step != v1alpha1.StepStaging:
		update.NothingSince, update.Missing = nil, 0
		return
	case was == nil && !since.IsZero():
		update.NothingSince = new(journey.Seconds(since))
	case was != nil && since.IsZero() &&
		(missing > 0 || was.Equal(&update.Since) || u.Left(u.Observed.Since(view.Instance, "nothing", was.Time),
			u.DaemonTimeout) <= 0):
		update.NothingSince = nil
	}
	if missing > 0 {
		update.Missing = missing
	}
}

// stillMissing is how many programs are still to come, as a daemon reports that fetches; 0 where it reports none.
func stillMissing(why string) (n int32) {
	if _, err := fmt.Sscanf(why, string(contract.ReasonStaging)+": %d of ", &n); err != nil {
		return 0
	}
	return n
}

func stagingFacts(update *v1alpha1.Update, node *corev1.Node) policy.StagingFacts {
	return policy.StagingFacts{
		CanStage: journey.StagesItself(node) && policy.CheckSkew(journey.ReleaseOf(update.Revision),
			journey.ReleaseOf(node.Annotations[contract.RevisionAnnotation])) == "",
		IsStageRequested: node.Annotations[contract.StageAnnotation] == update.Revision,
		IsStaged:         node.Annotations[contract.StagedAnnotation] == update.Revision,
	}
}

func (u *Upgrade) drainFacts(ctx context.Context, view *journey.View) policy.DrainFacts {
	update, node := view.Instance.Status.Update, view.Node
	f := policy.DrainFacts{
		Uncordoned: journey.IsUncordoned(node), IsOut: u.IsOut(node, view.Bounds), IsUndrained: isUndrained(view),
		HasLeft: u.HasLeft(ctx, update, requestedOf(node)),
	}
	if view.Drain != nil {
		f.Drain = drainState(*view.Drain)
	}
	return f
}

func drainState(outcome journey.Outcome) policy.DrainState {
	switch {
	case outcome.IsDone():
		return policy.Drained
	case outcome.Problem.Reason == contract.ReasonDrainBlocked:
		return policy.DrainBlocked
	case outcome.Problem.Reason == contract.ReasonDraining:
		return policy.DrainRunning
	}
	return policy.DrainWaiting
}

// lacks is what a node lacks to be well at its revision; nil when it is.
func (u *Upgrade) lacks(view *journey.View) *contract.Problem {
	update, node, kubelet := view.Instance.Status.Update, view.Node, ""
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

// lacksBack is what a node lacks to be well at its previous revision; nil when it is. since says for
// how long in the message.
func (u *Upgrade) lacksBack(view *journey.View, reason contract.Reason, since string) *contract.Problem {
	update, node := view.Instance.Status.Update, view.Node
	ready, message := journey.NodeReady(node)
	switch {
	case node.Annotations[contract.RevisionAnnotation] != update.From || refused(node, update.Revision) != nil:
		return contract.NewProblem(reason, "node %s goes back to revision %s%s%s, because: %s", node.Name, update.From,
			since, journey.ApplyStatus(node), update.Message)
	case !ready:
		return contract.NewProblem(reason, "node %s is back at revision %s and not Ready%s (%s), because: %s",
			node.Name, update.From, since, message, update.Message)
	}
	return nil
}

func (u *Upgrade) failure(view *journey.View, row policy.UpgradeRow) *contract.Problem {
	update, node := view.Instance.Status.Update, view.Node
	switch update.Step {
	case v1alpha1.StepStaging:
		return contract.NewProblem(row.Reason, "node %s does not get the payload of revision %s: %.300s", node.Name,
			update.Revision, node.Annotations[contract.StageStatusAnnotation])
	case v1alpha1.StepDraining:
		if view.Drain != nil {
			return view.Drain.Problem
		}
		return contract.NewProblem(row.Reason, "somebody uncordoned node %s while it was being drained", node.Name)
	}
	if why := refused(node, update.Revision); why != nil && !passes(why) && update.Step == v1alpha1.StepSwitching {
		return contract.NewProblem(row.Reason, "node %s went back by itself: %s", node.Name, why)
	}
	if u.isDownUnreported(view) {
		return contract.NewProblem(row.Reason, "node %s has not been Ready since %s, and its daemon did not respond "+
			"within %s", node.Name, u.Observed.NotReady(node).Began.UTC().Format(time.RFC3339), view.Bounds.Verify)
	}
	return contract.NewProblem(row.Reason, "%s, after %s", u.lacks(view).Detail, view.Bounds.Verify)
}

// wait is what a row says that waits, and when to look again.
func (u *Upgrade) wait(view *journey.View, row policy.UpgradeRow) journey.Outcome {
	update, node, outcome := view.Instance.Status.Update, view.Node, journey.Outcome{}
	untilLate := func() time.Duration {
		if update.SwitchTime != nil {
			return u.Left(u.switchSince(view), view.Bounds.Verify)
		}
		return u.Left(u.stepSince(view), view.Bounds.Verify)
	}
	switch update.Step {
	case v1alpha1.StepStaging:
		outcome = u.fetches(view, row.Reason)
	case v1alpha1.StepDraining:
		outcome = *view.Drain
	case v1alpha1.StepRollingBack:
		return u.goesBack(view, row.Reason)
	case v1alpha1.StepSwitching:
		outcome = journey.Follows(node, update.Revision)
		outcome.After = untilLate()
	default:
		if lacks := u.lacks(view); lacks != nil {
			outcome = journey.Wait(untilLate(), lacks.Reason, "%s", lacks.Detail)
			break
		}
		_, left := u.Settles(node, update.ReadySince, view.Bounds.Settle)
		outcome = journey.Wait(left, row.Reason, "node %s is at revision %s and has to stay Ready for %s", node.Name,
			update.Revision, view.Bounds.Settle)
	}
	outcome.Quiet = quiet(view)
	return outcome
}

// fetches waits for the daemon's payload.
func (u *Upgrade) fetches(view *journey.View, reason contract.Reason) journey.Outcome {
	update, node, after := view.Instance.Status.Update, view.Node, stageRetry
	why, detail := node.Annotations[contract.StageStatusAnnotation], ""
	if why != "" {
		detail = fmt.Sprintf(": %.300s", why)
	}
	if since := u.sinceNothing(view); !since.IsZero() {
		after = min(u.Left(since, u.DaemonTimeout), stageRetry)
	}
	return journey.Wait(after, reason, "node %s fetches revision %s%s", node.Name, update.Revision, detail)
}

// goesBack waits until a node is well at its previous revision. How long that takes has no end, as
// there is nothing else to go to; but it is reported, by the clock alone, as the table has it. Its
// place stays taken: it serves nobody, with or without one.
func (u *Upgrade) goesBack(view *journey.View, reason contract.Reason) journey.Outcome {
	update, since := view.Instance.Status.Update, ""
	_, left := u.Daemons.Unresponsive(view.Instance, view.Node)
	if reason == contract.ReasonRollbackTimedOut {
		since = " since " + update.Since.UTC().Format(time.RFC3339)
	} else if bound := view.Bounds.Verify - u.Now().Sub(u.stepSince(view).Began); left == 0 || bound < left {
		left = bound
	}
	problem := u.lacksBack(view, reason, since)
	outcome := journey.Wait(left, problem.Reason, "%s", problem.Detail)
	if reason == contract.ReasonRollbackTimedOut && view.Instance.Status.Reason != string(reason) {
		outcome = outcome.With(journey.FailedEvent(purpose, problem))
	}
	return outcome
}

// inVain says whether a daemon reports that it gets nothing where it is to fetch: as where a
// firewall lies in between. What lies with its host, such as a full disk, is no better over SSH, and
// a fetch that takes long goes on.
func inVain(why string) bool {
	reason, _, _ := strings.Cut(why, ":")
	return reason == string(contract.ReasonPayloadIncomplete)
}
