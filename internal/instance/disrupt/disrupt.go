// Package disrupt upgrades a node, rolls it back to its previous revision, or reboots its host. The package requests
// these changes from the node's daemon with annotations of the Node, and never contacts a host. It gathers the facts
// for policy.NextUpgrade, which decides what to do next. The instance controller calls this package.
package disrupt

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Disrupt upgrades and reboots nodes.
type Disrupt struct{ *journey.Parts }

// stuckRetry is how often the operator checks a node that can neither continue nor roll back. Normally, an event about
// the Node comes earlier.
const stuckRetry = time.Minute

// Controller is the part of the instance controller that Disrupt calls in one reconcile.
type Controller interface {
	// Save writes the status of the instance if it has changed.
	Save(ctx context.Context) error
	// Take requests a slot in the rollout budget. If the host gets the slot, Take calls `granted`, which changes the
	// status. One write saves the slot and this change. A repeated call keeps the slot or request.
	Take(ctx context.Context, granted func()) (policy.Verdict, error)
	// Note reports the events and metrics of an outcome. A repeated call reports them again.
	Note(ctx context.Context, outcome journey.Outcome)
}

// View contains the facts about one node for one reconcile.
type View struct {
	Controller
	// Next changes the status of Instance in memory. Saved is the status in the API server.
	Instance *v1alpha1.WindowsInstance
	Saved    *v1alpha1.WindowsInstanceStatus
	Node     *corev1.Node
	Bounds   journey.Bounds
	// Desired is the published revision, or nil. Change is the update to Desired, or nil if none is needed.
	Desired *blueprint.Desired
	Change  *journey.Update
	// Fetch stores the daemon's last reports about its payload.
	Fetch   *Fetch
	Reboots *Reboots
	// RebootDue reports that a reboot follows the upgrade in the same slot.
	RebootDue bool
	// Jitter is a number in [0,1) that spreads the retries of different hosts.
	Jitter float64

	// drain is the outcome of this reconcile's drain. isRequested: this reconcile has requested the revision.
	// isOverSSH: the host must join again to get the revision. unwritten is why the request for a reboot could not be
	// written.
	drain       *journey.Outcome
	isRequested bool
	isOverSSH   bool
	unwritten   error
}

func (v *View) activity() *v1alpha1.Activity { return v.Instance.Status.Activity }

// maxSteps limits the steps of one reconcile. An upgrade has a dozen steps.
const maxSteps = 50

// Next takes steps of an upgrade or a reboot until the node must wait or the host must join again.
func (d *Disrupt) Next(ctx context.Context, view *View, kind v1alpha1.ActivityKind) (journey.Outcome, error) {
	if kind == v1alpha1.ActivityReboot {
		if outcome, ends := d.needsNoReboot(ctx, view); ends {
			return outcome, nil
		}
	} else if view.Change != nil && !view.Change.Waits() { // no pod is disrupted, and the host already has all data
		return d.applyAtOnce(ctx, view)
	}
	if outcome, ends := d.keepSlot(ctx, view); ends {
		return outcome, nil
	}
	if kind == v1alpha1.ActivityUpgrade && !d.isUndrained(ctx, view) {
		d.aim(ctx, view)
	}
	for range maxSteps {
		d.noteRequest(ctx, view)
		if view.mustSave() {
			if err := view.Save(ctx); err != nil {
				return journey.Outcome{}, err
			}
		}
		facts := d.facts(ctx, view)
		row := policy.NextUpgrade(view.activity().Step, facts, d.Now())
		if outcome, ends := d.carryOut(ctx, view, row, facts); ends {
			return outcome, nil
		}
	}
	return journey.Outcome{After: journey.CallRetry, IsUnreported: true}, nil
}

// keepSlot requests a slot again if a node lost its slot, for example because a user paused the host. If the node was
// only being drained, keepSlot first returns the node to service, because the node may wait long for a slot.
func (d *Disrupt) keepSlot(ctx context.Context, view *View) (outcome journey.Outcome, ends bool) {
	status := &view.Instance.Status
	activity := status.Activity
	if !activity.Begun() || status.HasSlot() {
		return journey.Done(), false
	}
	if activity.Step != v1alpha1.StepDraining || status.IsRequested() {
		return d.takeSlot(ctx, view)
	}
	if outcome = d.Nodes.ReturnToService(ctx, view.Node); !outcome.IsDone() {
		return outcome, true
	}
	d.toStep(view, v1alpha1.StepWaiting)
	status.Phase = v1alpha1.PhaseReady
	return outcome, false
}

func (d *Disrupt) noteRequest(ctx context.Context, view *View) {
	switch activity := view.activity(); {
	case activity.Step != v1alpha1.StepSwitching:
	case activity.Kind == v1alpha1.ActivityReboot:
		if activity.BootID == "" {
			activity.BootID = view.Node.Annotations[contract.BootIDAnnotation]
		}
	case !d.isUndrained(ctx, view):
		view.Instance.Status.DesiredRevision = activity.Revision
	}
}

// mustSave reports whether the status must be saved before the operator acts on the current step. Otherwise, a
// restarted operator could not continue the step. A step that only waits for a slot or for verification needs no save.
func (v *View) mustSave() bool {
	type essence struct {
		step           v1alpha1.Step
		hasSlot        bool
		revision, boot string
	}
	of := func(status *v1alpha1.WindowsInstanceStatus) essence {
		e := essence{hasSlot: status.HasSlot(), revision: status.DesiredRevision}
		if a := status.Activity; a != nil && a.Kind == v.activity().Kind {
			e.step, e.boot = a.Step, a.BootID
		}
		return e
	}
	step := v.activity().Step
	return step != v1alpha1.StepWaiting && step != v1alpha1.StepVerifying && of(&v.Instance.Status) != of(v.Saved)
}

// carryOut carries out the decision of policy.NextUpgrade. If `ends` is false, NextUpgrade must decide again at once.
func (d *Disrupt) carryOut(ctx context.Context, view *View, row policy.UpgradeRow,
	facts policy.UpgradeFacts) (outcome journey.Outcome, ends bool) {
	status, node, err := &view.Instance.Status, view.Node, error(nil)
	activity := status.Activity
	isReboot := activity.Kind == v1alpha1.ActivityReboot
	switch row.Action {
	case policy.ActionWait:
		if row.Next == activity.Step {
			return d.wait(ctx, view, row), true
		}
	case policy.ActionTakeSlot:
		return d.takeSlot(ctx, view)
	case policy.ActionRequestStaging:
		err = d.Nodes.Annotate(ctx, node, map[string]string{contract.StageAnnotation: activity.Revision})
	case policy.ActionDrain:
		view.drain = new(d.CordonAndDrain(ctx, view.Instance, node, view.Bounds.Drain))
	case policy.ActionSwitch:
		if isReboot {
			err = d.Nodes.Annotate(ctx, node, map[string]string{contract.RebootApprovedAnnotation: activity.BootID})
			break
		}
		requested := requestedOf(node) == activity.Revision
		err = d.Nodes.SetFields(ctx, node,
			journey.NodeFields{Instance: view.Instance, Revision: activity.Revision, Upgrading: true, Bare: true})
		view.isRequested = err == nil
		// The time for verification begins with the request to the daemon, which may be long after the decision.
		if now := d.Now(); err == nil && !requested && now.Sub(activity.Since.Time) > switchDelay {
			activity.Since = journey.Seconds(now)
		}
	case policy.ActionRestore:
		// Delete the daemon's earlier reports. While the host changes revisions, the reported revision may be outdated,
		// and the reported reason may be about the revision that failed.
		err = d.Nodes.Annotate(ctx, node, map[string]string{contract.DesiredRevisionAnnotation: status.HeldRevision,
			contract.RevisionAnnotation: "", contract.ApplyStatusAnnotation: ""})
	case policy.ActionJoin:
		logf.FromContext(ctx).Info("upgrading over SSH", "revision", activity.Revision)
		d.toStep(view, row.Next)
		status.Phase = v1alpha1.PhasePending
		return journey.Outcome{Then: journey.JoinAgain}, true
	case policy.ActionFail:
		return d.fail(ctx, view, facts, d.failure(view, row))
	case policy.ActionReturn:
		return d.returnFromBack(ctx, view), true
	case policy.ActionFinish:
		if isReboot {
			return d.finishReboot(ctx, view), true
		}
		return d.finishUpgrade(ctx, view)
	}
	switch {
	case err == nil:
		d.leaveStep(view, row.Next)
		return outcome, false
	case isReboot: // the time limit of the reboot applies to its retries
		view.unwritten = err
		return outcome, false
	}
	outcome = journey.RetryWrite(err)
	outcome.Quiet = d.quiet(ctx, view)
	return outcome, true
}

// toStep begins a step, and records the time. Exception: the verification of an upgrade keeps the time of the request.
func (d *Disrupt) toStep(view *View, step v1alpha1.Step) {
	activity := view.activity()
	if activity.Step == step {
		return
	}
	if activity.Step = step; step != v1alpha1.StepVerifying || activity.Kind == v1alpha1.ActivityReboot {
		activity.Since = journey.Seconds(d.Now())
	}
}

func (d *Disrupt) leaveStep(view *View, step v1alpha1.Step) {
	status := &view.Instance.Status
	switch activity := status.Activity; {
	case step == activity.Step:
		return
	case activity.Step == v1alpha1.StepDraining:
		if view.drain == nil { // a user removed the cordon
			view.drain = new(journey.Done())
		}
	case activity.Step == v1alpha1.StepSwitching && step == v1alpha1.StepDraining:
		status.DesiredRevision = requestedOf(view.Node)
	case step == v1alpha1.StepVerifying:
		d.Observed.While(view.Instance, well, false)
	}
	d.toStep(view, step)
}

// The method `granted` records the start of the disruption. Take saves this record and the slot in one write. With each
// slot, the time limit of a reboot starts again: if a user paused the host during the reboot, the daemon may have
// missed the approval that the operator wrote before the pause.
func (d *Disrupt) granted(ctx context.Context, view *View) {
	status, now := &view.Instance.Status, journey.Seconds(d.Now())
	activity := status.Activity
	if view.isOverSSH {
		return // the join over SSH changes the status
	}
	status.Phase = v1alpha1.PhaseUpdating
	if activity.Kind == v1alpha1.ActivityReboot {
		status.Phase, activity.Since = v1alpha1.PhaseRebooting, now
	}
	if activity.Begun() {
		return
	}
	activity.Step, activity.Since, activity.NextTime = v1alpha1.StepDraining, now, nil
	if !d.drains(ctx, view) {
		activity.Step, status.DesiredRevision = v1alpha1.StepSwitching, activity.Revision
	}
}

// slotRetry is how often the operator checks a node that waits for its slot. Normally, an event comes earlier.
const slotRetry = time.Minute

// takeSlot requests a slot in the rollout budget. If it is too early for the next try, or if the operator has no
// private key for a host that must join again, takeSlot returns a wait. `ends` is false if the node has its slot.
func (d *Disrupt) takeSlot(ctx context.Context, view *View) (outcome journey.Outcome, ends bool) {
	activity, node, log := view.activity(), view.Node.Name, logf.FromContext(ctx)
	if view.isOverSSH {
		if outcome = d.Access.HasKey(ctx, view.Instance); !outcome.IsDone() {
			return outcome, true
		}
	}
	waits, last := "revision "+activity.Revision+" is desired and waits", lastTry(activity, node)
	if activity.Kind == v1alpha1.ActivityReboot {
		waits = "node " + node + " needs a reboot and waits"
	}
	if next := activity.NextTime; next != nil && next.After(d.Now()) {
		outcome = journey.Wait(next.Sub(d.Now()), last.Reason, "%s", last.Detail)
		outcome.Quiet = d.quiet(ctx, view)
		return outcome, true
	}
	verdict, err := view.Take(ctx, func() { d.granted(ctx, view) })
	switch {
	case err != nil:
		outcome = journey.Wait(journey.CallRetry, contract.ReasonAPICallFailed,
			"acquiring a slot in the rollout budget: %v", err)
	case verdict.Allowed:
		log.Info("node was granted a slot in the rollout budget", "node", node, "purpose", activity.Kind, "why",
			verdict.Why)
		started := journey.Outcome{IsRequested: activity.Step == v1alpha1.StepSwitching}
		if !view.isOverSSH && d.drains(ctx, view) { // RejoinEvent reports the start of an upgrade over SSH
			started = started.With(journey.StartedEvent(&view.Instance.Status))
		}
		view.Note(ctx, started)
		return outcome, false
	case verdict.Reason == contract.ReasonRolloutHalted && last.Detail != "":
		outcome = journey.Wait(slotRetry, last.Reason, "%s", last.Detail) // the last detail is more specific
	case verdict.Reason != "":
		outcome = journey.Wait(slotRetry, verdict.Reason, "%s: %s", waits, verdict.Why)
	default:
		log.V(1).Info("node waits for its turn", "node", node, "purpose", activity.Kind, "why", verdict.Why)
		outcome = journey.Wait(slotRetry, contract.ReasonBudgetExhausted, "%s for the rollout budget: %s", waits,
			verdict.Shown())
	}
	outcome.Quiet = d.quiet(ctx, view)
	return outcome, true
}

// lastTry returns why the last try failed or, after a successful reboot, why the next reboot waits.
func lastTry(activity *v1alpha1.Activity, node string) *contract.Problem {
	if activity.Kind == v1alpha1.ActivityReboot && activity.Reason == "" {
		return contract.NewProblem(contract.ReasonRebooting,
			"node %s was rebooted just now, and a reboot is still requested", node)
	}
	return contract.NewProblem(cmp.Or(contract.Reason(activity.Reason), contract.ReasonRevisionPending), "%s",
		activity.Message)
}

// fail ends a failed step. If the daemon was not asked for the new revision yet, the node returns to service and is
// tried again later, so that other nodes can continue. Otherwise, the node is rolled back. Exception: if there is no
// previous revision, or if the host does not come back from a reboot, the node keeps its state and its slot.
func (d *Disrupt) fail(ctx context.Context, view *View, facts policy.UpgradeFacts,
	problem *contract.Problem) (outcome journey.Outcome, ends bool) {
	status := &view.Instance.Status
	activity := status.Activity
	note(activity, problem)
	event := journey.FailedEvent(activity.Kind, problem)
	switch action := policy.NextUpgrade(policy.StepFailed, facts, d.Now()).Action; action {
	case policy.ActionReturn:
		return d.tryLater(ctx, view, "", problem), true
	case policy.ActionRollBack, policy.ActionRollBackOnly:
		logf.FromContext(ctx).Info("rolling back", "revision", activity.Revision, "to", status.HeldRevision, "reason",
			problem.Reason, "detail", problem.Detail)
		d.toStep(view, v1alpha1.StepRollingBack)
		// Save the failure before the slot is free, so that no second node is upgraded to this revision.
		if status.IsRequested() && action == policy.ActionRollBack {
			journey.FailedAt(status, activity.Revision, problem, d.Now())
		}
		status.DesiredRevision = status.HeldRevision
		view.Note(ctx, journey.Done().With(event))
		return outcome, false
	}
	outcome = journey.Wait(stuckRetry, problem.Reason, "%s", problem.Detail)
	if activity.Kind == v1alpha1.ActivityReboot && status.Reason() != string(problem.Reason) {
		outcome = outcome.With(event)
	}
	return outcome, true
}

// tryLater returns the node to service until the next try. The parameter `result` is empty if the disruption failed.
func (d *Disrupt) tryLater(ctx context.Context, view *View, result string, why *contract.Problem) journey.Outcome {
	status := &view.Instance.Status
	activity := status.Activity
	if activity.Kind == v1alpha1.ActivityReboot {
		if err := d.WithdrawReboot(ctx, view.Node); err != nil {
			return journey.RetryWrite(err)
		}
		if why.Reason != contract.ReasonDaemonUnresponsive { // keep the boot ID: the host joins again
			activity.BootID = ""
		}
	}
	if outcome := d.Nodes.ReturnToService(ctx, view.Node); !outcome.IsDone() {
		return outcome
	}
	activity.Tries++
	wait := policy.DisruptBackoff(activity.Tries, view.Jitter)
	d.toStep(view, v1alpha1.StepWaiting)
	activity.NextTime = new(journey.Seconds(d.Now().Add(wait)))
	note(activity, why)
	outcome := journey.Wait(wait, why.Reason, "%s", why.Detail)
	outcome.Released = journey.Release(status, activity.Kind, cmp.Or(result, string(why.Reason)))
	if result == "" {
		outcome = outcome.With(journey.FailedEvent(activity.Kind, why))
	}
	return outcome
}

func note(activity *v1alpha1.Activity, problem *contract.Problem) {
	activity.Reason, activity.Message = string(problem.Reason), problem.Detail
}
