// Package upgrade answers how a node gets to another revision, or back to the one that it held, through
// annotations of its Node: the table in policy decides, and this package gathers what it decides upon,
// and acts. The instance controller runs it. It never contacts a host.
package upgrade

import (
	"cmp"
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

// Upgrade takes a node to another revision.
type Upgrade struct{ *journey.Parts }

// stuckRetry is a safety net for a node that has no revision to go back to: its news are events.
const stuckRetry = time.Minute

// switchDelay is how much later than it was decided a daemon may be told its revision without that being noted, which
// takes a write.
const switchDelay = time.Minute

const purpose = v1alpha1.DisruptionUpdate

// Next goes on until something is to be waited for, saved, or done by another.
func (u *Upgrade) Next(ctx context.Context, view *journey.View) (journey.Outcome, error) {
	status := &view.Instance.Status
	if view.Change != nil && !view.Change.Waits() { // pods don't feel it, and the host has all that it needs
		return u.applyAtOnce(ctx, view)
	}
	kept := u.KeepsPlace(ctx, view, purpose, isRequested(status), u.place)
	if !kept.IsDone() || kept.Then != journey.Stop {
		return kept, nil
	}
	if !isUndrained(view) {
		u.aim(ctx, view)
	}
	for {
		if status.Update.Step == v1alpha1.StepSwitching && !isUndrained(view) {
			u.noteSwitch(status)
		}
		if view.MustSave(purpose) {
			return journey.Outcome{Then: journey.Save}, nil
		}
		facts := u.facts(ctx, view)
		row := policy.NextUpgrade(status.Update.Step, facts, u.Now())
		u.noteFacts(view, facts)
		if outcome, ends := u.act(ctx, view, row, facts); ends {
			return outcome, nil
		}
	}
}

// noteFacts keeps what the next reconcile can't see: that a daemon did not respond before the
// switch, since when it gets nothing, and since when a node is well without a break.
func (u *Upgrade) noteFacts(view *journey.View, facts policy.UpgradeFacts) {
	update := view.Instance.Status.Update
	update.OverSSH = facts.OverSSH
	u.noteNothing(view)
	switch {
	case update.Step != v1alpha1.StepVerifying:
	case facts.Lacks == "":
		update.ReadySince, _ = u.Settles(view.Node, update.ReadySince, view.Bounds.Settle)
	default:
		update.ReadySince = nil
	}
}

// act does what a row says. It ends the reconcile's part unless there is more to decide.
func (u *Upgrade) act(ctx context.Context, view *journey.View, row policy.UpgradeRow,
	facts policy.UpgradeFacts) (outcome journey.Outcome, ends bool) {
	status := &view.Instance.Status
	update := status.Update
	switch row.Action {
	case policy.ActionFail:
		return u.fail(ctx, view, facts, u.failure(view, row)), true
	case policy.ActionTakePlace:
		return u.takePlace(ctx, view), true
	case policy.ActionJoin:
		logf.FromContext(ctx).Info("upgrading over SSH", "revision", update.Revision)
		update.OverSSH = true
		u.ToStep(&update.Progress, row.Next)
		status.Phase = v1alpha1.PhasePending
		return journey.Outcome{Then: journey.JoinAgain}, true
	case policy.ActionFinish:
		return u.finish(ctx, view), true
	case policy.ActionReturn:
		return u.returnFromBack(ctx, view), true
	case policy.ActionWait:
		if row.Next == update.Step {
			return u.wait(view, row), true
		}
	}
	if err := u.write(ctx, view, row.Action); err != nil {
		outcome = journey.RetryWrite(err)
		outcome.Quiet = quiet(view)
		return outcome, true
	}
	u.toStep(view, row.Next)
	return outcome, false
}

// write does what changes the Node or the status, and what the table is asked again after.
func (u *Upgrade) write(ctx context.Context, view *journey.View, action policy.UpgradeAction) (err error) {
	update, node := view.Instance.Status.Update, view.Node
	switch action {
	case policy.ActionRequestStaging:
		err = u.Nodes.Annotate(ctx, node, map[string]string{contract.StageAnnotation: update.Revision})
	case policy.ActionSwitch:
		told := requestedOf(node) == update.Revision
		err = u.Nodes.Mark(ctx, node,
			journey.Marks{Instance: view.Instance, Revision: update.Revision, Upgrading: true, Bare: true})
		view.IsRequested = err == nil
		// The time for verification begins when the daemon is told, which may be long after that was decided.
		if now := u.Now(); err == nil && !told && now.Sub(update.SwitchTime.Time) > switchDelay {
			update.SwitchTime = new(journey.Seconds(now))
		}
	case policy.ActionRestore:
		// What the daemon reported before is taken away: the revision may still be the previous one, while the host is
		// between the two, and why it left the other is no response to this.
		err = u.Nodes.Annotate(ctx, node, map[string]string{contract.DesiredRevisionAnnotation: update.From,
			contract.RevisionAnnotation: "", contract.ApplyStatusAnnotation: ""})
	case policy.ActionDrain:
		view.Drain = new(u.CordonAndDrain(ctx, view.Instance, node, view.Bounds.Drain))
	case policy.ActionUseSSH:
		update.OverSSH = true
	}
	return err
}

// toStep begins a step, and notes what follows from leaving the one before.
func (u *Upgrade) toStep(view *journey.View, step v1alpha1.Step) {
	status := &view.Instance.Status
	switch update := status.Update; {
	case step == update.Step:
		return
	case update.Step == v1alpha1.StepDraining:
		if view.Drain == nil { // the cordon was lifted
			drained := journey.Done()
			view.Drain = &drained
		}
	case update.Step == v1alpha1.StepSwitching && step == v1alpha1.StepDraining:
		update.SwitchTime, status.DesiredRevision = nil, requestedOf(view.Node)
	}
	u.ToStep(&status.Update.Progress, step)
}

// Granted notes what begins with a place in the budget, in the same write.
func (u *Upgrade) Granted(status *v1alpha1.WindowsInstanceStatus) {
	update := status.Update
	if update == nil || update.OverSSH {
		return
	}
	status.Phase = v1alpha1.PhaseUpdating
	if journey.Begun(update.Step) {
		return
	}
	update.Step, update.Since, update.NextTime = v1alpha1.StepDraining, journey.Seconds(u.Now()), nil
	if !update.Drains {
		update.Step = v1alpha1.StepSwitching
		u.noteSwitch(status)
	}
}

// Resumed has what was under way when its host was paused take its time anew, as nobody looked at it meanwhile. How
// long a node has gone back is reported, and goes on.
func Resumed(status *v1alpha1.WindowsInstanceStatus, at time.Time) {
	update, now := status.Update, journey.Seconds(at)
	if update == nil || !journey.Begun(update.Step) || update.Step == v1alpha1.StepRollingBack {
		return
	}
	update.Since, update.ReadySince = now, nil
	if update.SwitchTime != nil {
		update.SwitchTime = &now
	}
}

// noteSwitch notes, before it is requested of the daemon, that from now on the host is to have the revision.
func (u *Upgrade) noteSwitch(status *v1alpha1.WindowsInstanceStatus) {
	update, now := status.Update, journey.Seconds(u.Now())
	if status.DesiredRevision != update.Revision {
		status.DesiredRevision = update.Revision
		update.SwitchTime, update.ReadySince = &now, nil
	}
	if update.SwitchTime == nil {
		update.SwitchTime = &now
	}
}

func (u *Upgrade) place(view *journey.View) journey.Place {
	update := view.Instance.Status.Update
	place := journey.Place{Purpose: purpose, Waits: fmt.Sprintf("revision %s is desired and waits", update.Revision),
		Last: contract.NewProblem(cmp.Or(contract.Reason(update.Reason), contract.ReasonRevisionPending), "%s",
			update.Message)}
	place.Revision = RevisionToTry(&view.Instance.Status, view.Node)
	return place
}

// RevisionToTry is the revision that a node is taken to with a place, and that may be halted; empty
// where it is going there already, or back.
func RevisionToTry(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) string {
	update := status.Update
	if update == nil || update.SwitchTime != nil || update.Step == v1alpha1.StepRollingBack ||
		node.Annotations[contract.DesiredRevisionAnnotation] == update.Revision {
		return ""
	}
	return update.Revision
}

// takePlace asks for a place, unless the host is to be joined again and there is no key for that.
func (u *Upgrade) takePlace(ctx context.Context, view *journey.View) journey.Outcome {
	if view.Instance.Status.Update.OverSSH {
		if outcome := u.Access.HasKey(ctx); !outcome.IsDone() {
			return outcome
		}
	}
	outcome := u.TakePlace(view, u.place(view))
	outcome.Quiet = quiet(view)
	return outcome
}

// aim sets out for the desired revision, or turns to a newer one where the node is.
func (u *Upgrade) aim(ctx context.Context, view *journey.View) {
	status := &view.Instance.Status
	update, desired := status.Update, view.Desired
	begin := func(revision, from string, drains, payload bool) {
		status.Update = &v1alpha1.Update{Revision: revision, From: from, Drains: drains,
			Progress: v1alpha1.Progress{Step: v1alpha1.StepStaging, Since: journey.Seconds(u.Now())}}
		if !payload {
			status.Update.Step = v1alpha1.StepWaiting
		}
	}
	switch {
	case update == nil || view.Change != nil && (desired == nil || update.Revision != desired.Revision):
		begin(view.Change.Revision, view.Change.From, view.Change.Drains, view.Change.Payload)
	case desired != nil && update.Revision != desired.Revision: // from where it is, without going back in between
		if journey.Begun(update.Step) {
			noteRequested(view)
		}
		logf.FromContext(ctx).Info("going on to a newer revision", "revision", desired.Revision, "instead",
			update.Revision)
		on := u.Revisions.Compare(ctx, update.Revision, *desired)
		begin(desired.Revision, update.From, update.Drains || on.Drains, on.Payload)
	}
}

// noteRequested puts down which revision the daemon has been told last. What was decided and not told is not told any
// more: otherwise a later correction of the Node would disrupt it without a place.
func noteRequested(view *journey.View) {
	status := &view.Instance.Status
	if told := requestedOf(view.Node); told != "" && (told == status.Update.Revision || told == status.Update.From) {
		status.DesiredRevision = told
	}
}

// requestedOf is the revision that a Node's daemon is told to have; empty where there is none.
func requestedOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Annotations[contract.DesiredRevisionAnnotation]
}

// applyAtOnce has the daemon apply a revision without a place in the budget.
func (u *Upgrade) applyAtOnce(ctx context.Context, view *journey.View) (journey.Outcome, error) {
	view.Instance.Status.Update = nil
	if err := u.Move(ctx, view.Instance, view.Node, view.Change.Revision); err != nil {
		return journey.Outcome{}, err
	}
	// as its Node's event brings it again, which then is no news
	outcome := journey.Follows(view.Node, view.Change.Revision)
	outcome.Quiet, outcome.IsRequested = journey.QuietPeriod, true
	return outcome, nil
}

// Move requests another revision of a daemon.
func (u *Upgrade) Move(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	revision string) error {
	marks := journey.Marks{Instance: instance, Revision: revision, Bare: true}
	if err := u.Nodes.Request(ctx, node, marks); err != nil {
		return err
	}
	instance.Status.DesiredRevision = revision
	return nil
}

// fail is for a step that failed. A node that was not switched yet goes back into service and is
// tried again later, so that others go on. One that was has the previous revision put back, if there
// is one; else it stays where it is, and goes on trying.
func (u *Upgrade) fail(ctx context.Context, view *journey.View, facts policy.UpgradeFacts,
	problem *contract.Problem) journey.Outcome {
	status := &view.Instance.Status
	update := status.Update
	note(update, problem)
	switch action := policy.NextUpgrade(policy.StepFailed, facts, u.Now()).Action; action {
	case policy.ActionReturn:
		return u.tryLater(ctx, view, "", problem)
	case policy.ActionRollBack, policy.ActionRollBackOnly:
		logf.FromContext(ctx).Info("rolling back", "revision", update.Revision, "to", update.From, "reason",
			problem.Reason,
			"detail", problem.Detail)
		update.Step, update.Since, update.ReadySince = v1alpha1.StepRollingBack, journey.Seconds(u.Now()), nil
		status.DesiredRevision = update.From
		// Whoever decides next must know of it before the place is given back: that is what keeps a
		// second node from being taken there.
		if update.SwitchTime != nil && action == policy.ActionRollBack { // the revision was tried
			status.UpdateFailure = &v1alpha1.UpdateFailure{Revision: update.Revision, Code: problem.Reason.Code(),
				Message: problem.Detail, Time: journey.Seconds(u.Now())}
		}
		return journey.Outcome{Then: journey.Save}.With(journey.FailedEvent(purpose, problem))
	}
	return journey.Wait(stuckRetry, problem.Reason, "%s", problem.Detail)
}

// returnFromBack ends the journey of a node that is well at its previous revision.
func (u *Upgrade) returnFromBack(ctx context.Context, view *journey.View) journey.Outcome {
	status := &view.Instance.Status
	update := status.Update
	status.HeldRevision = update.From
	return u.tryLater(ctx, view, journey.ResultRolledBack, contract.NewProblem(contract.ReasonUpdateFailed,
		"node %s is back at revision %s, because at %s: %s", view.Node.Name, update.From, update.Revision,
		update.Message))
}

// tryLater puts the node back into service until the next try.
func (u *Upgrade) tryLater(ctx context.Context, view *journey.View, result string,
	why *contract.Problem) journey.Outcome {
	outcome, isBack := u.TryLater(ctx, view, purpose, result, why)
	if !isBack {
		return outcome
	}
	view.Instance.Status.Update.SwitchTime = nil
	note(view.Instance.Status.Update, why)
	if result == "" {
		outcome = outcome.With(journey.FailedEvent(purpose, why))
	}
	return outcome
}

// finish ends the journey of a node that is well at its revision. One that is to be rebooted, too, goes
// on with that in its place, so that it is drained once.
func (u *Upgrade) finish(ctx context.Context, view *journey.View) journey.Outcome {
	status := &view.Instance.Status
	if !view.RebootDue {
		if outcome := u.Nodes.ReturnToService(ctx, view.Node); !outcome.IsDone() {
			return outcome
		}
	}
	revision := status.Update.Revision
	logf.FromContext(ctx).Info("node is at its new revision", "node", status.NodeName, "revision", revision)
	outcome := journey.Done().With(journey.DoneEvent(purpose, fmt.Sprintf("node %s is at revision %s", status.NodeName,
		revision)))
	status.Revision, status.HeldRevision = revision, status.Update.From
	journey.Hold(status, revision)
	status.Update, status.Failures = nil, 0
	place := status.Disruption
	outcome.Released = journey.Release(status, purpose, journey.ResultVerified)
	if view.RebootDue {
		status.Disruption, outcome.Then = place, journey.RebootToo
	}
	return outcome
}

// note keeps why the last try failed.
func note(update *v1alpha1.Update, problem *contract.Problem) {
	update.Reason, update.Message = string(problem.Reason), problem.Detail
}
