package instance

import (
	"cmp"
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/join"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/instance/upgrade"
	"github.com/windows-nodes/wmco/internal/policy"
)

// joining is the reconciliation of a host that is joined, for the first time or again: it takes the phases one after
// the other, and asks for a place in the rollout budget before the first one that is felt at a node.
type joining struct{ *reconciliation }

// mayJoin decides whether a host may be joined. One that is a node needs a place in the
// rollout budget, also when an attempt failed; a host that can't be reached meanwhile keeps no
// place from others. One whose node has not been Ready for long loses nothing, and comes back
// at the revision that it held; to go to another it needs a place, too. No such host is brought to a revision at which
// the rollout halted.
func (c joining) mayJoin(ctx context.Context) (policy.Verdict, error) {
	free := policy.Verdict{Allowed: true, Why: "no pods are disrupted"}
	status := &c.instance.Status
	if status.HasPlace() || journey.IsFirstJoin(status) || c.life.session.HasReplacedKey() {
		return free, nil // what is left of a join whose keys are replaced disrupts no pods
	}
	node, serves, err := c.parts.InService(ctx, c.instance)
	if err != nil || !serves && status.JoinedTime == nil {
		return free, err
	}
	if join.IsUpgradedWhileDown(status.Update) {
		return c.mayUpgradeWhileDown(ctx, node, serves)
	}
	if serves {
		revision := upgrade.RevisionToTry(status, node)
		if revision == "" {
			revision = c.parts.Revisions.NotHeld(ctx, c.instance)
		}
		return c.place.take(ctx, v1alpha1.DisruptionUpdate, revision,
			func() { c.journeys.upgrade.Granted(status) })
	}
	c.journeys.join.RejoinAtHeld(status)
	halted, err := c.halted(ctx, c.parts.Revisions.NotHeld(ctx, c.instance))
	if halted != "" {
		return policy.Verdict{Reason: contract.ReasonRolloutHalted, Why: halted}, err
	}
	return free, err
}

// mayUpgradeWhileDown is mayJoin for a host whose node is down or gone, and that is taken to another revision. It is
// made ready for that before it asks for its place; one that found the budget full then has its place before it is
// dialled again. Once its node is Ready it goes there like any other, and one that is Ready there already stays.
func (c joining) mayUpgradeWhileDown(ctx context.Context, node *corev1.Node, serves bool) (policy.Verdict, error) {
	status := &c.instance.Status
	switch {
	case serves && status.Phase == v1alpha1.PhaseConfirming && join.HasReachedRevision(status, node):
		return policy.Verdict{Allowed: true, Why: "its node is Ready there"}, nil
	case serves:
		return policy.Verdict{Reason: contract.ReasonInProgress, Why: "its node is Ready again"}, nil
	case !c.life.session.Connected() && !c.life.isReached:
		return policy.Verdict{Allowed: true, Why: "nothing is done to its node yet"}, nil
	}
	config, err := c.config(ctx)
	if err != nil {
		return policy.Verdict{}, err
	}
	if closed := policy.Closed(config.Spec.Rollout, c.now()); closed != "" {
		return policy.Verdict{Reason: contract.ReasonMaintenanceWindowClosed, Why: closed}, nil
	}
	return c.place.take(ctx, v1alpha1.DisruptionUpdate, status.Update.Revision, func() {})
}

// upgradeWhileDown has a host whose node has not been Ready for long begin to go to the revision that is desired by
// now, which may be what it needs: it was joined again at the one that it held, and that did not help. Like any other
// it does so in a place of its own, in no closed window, and not where it failed or the rollout halted.
func (c joining) upgradeWhileDown(ctx context.Context) error {
	status := &c.instance.Status
	desired, _, err := c.parts.Desired.Current(ctx)
	if err != nil || c.life.session.Connected() {
		return nil //nolint:nilerr // the join waits for it
	}
	if !join.DropUndesired(status, desired.Revision) {
		if noHelp, err := join.RejoinFailed(ctx, c.parts, c.instance); err != nil || !noHelp {
			return err
		}
	}
	if !join.MayUpgradeWhileDown(status, desired.Revision) {
		return nil
	}
	_, serves, err := c.parts.InService(ctx, c.instance)
	if err != nil || serves {
		return err
	}
	change := c.parts.Revisions.Compare(ctx, status.DesiredRevision, desired)
	if !change.Waits() {
		join.SetRevision(status, desired.Revision)
		return nil
	}
	config, err := c.config(ctx)
	if err != nil || policy.Closed(config.Spec.Rollout, c.now()) != "" {
		return err
	}
	if halted, err := c.halted(ctx, desired.Revision); err != nil || halted != "" {
		return err
	}
	join.BeginUpgradeWhileDown(status, change, c.now())
	return nil
}

// run goes through the phases until one waits or fails.
func (c joining) run(ctx context.Context) (ctrl.Result, error) {
	if !join.IsHalfway(&c.instance.Status, &c.life.session) {
		if well, err := c.recovered(ctx); err != nil || well {
			if err != nil {
				return ctrl.Result{}, err
			}
			return c.check(ctx)
		}
	}
	if waits := c.awaitTurn(ctx); waits != nil {
		return waits.result, waits.err
	}
	phases := c.journeys.join.Phases()
	work, ended := c.interruptible(ctx, c.life)
	defer ended()
	for i := c.journeys.join.Resume(ctx, c.instance, &c.life.session); i < len(phases); {
		c.status.enter(phases[i].Name, i == 0)
		if err := c.record.save(ctx); err != nil {
			return ctrl.Result{}, err
		}
		outcome := phases[i].Run(work, c.instance, &c.life.session)
		switch {
		case errors.Is(context.Cause(work), errLeaving):
			c.stop()
			return c.result(ctx, 0) // its deletion is an event that is waiting already
		case outcome.IsFailed():
			return c.failed(ctx, outcome)
		case outcome.IsWaiting():
			c.life.failedIn = "" // what it waits for is newer
			if outcome.Endless {
				c.place.release()
			}
			c.report(ctx, outcome)
			return c.result(ctx, outcome.After)
		case outcome.Then == journey.Save:
			continue // the phase goes on once that is saved
		case outcome.Then == journey.Confirm:
			c.status.passed(phases[i].Name)
			i = len(phases) - 1
			continue
		case outcome.Then == journey.AskForPlace:
			again, waits := c.askForPlace(ctx)
			if waits != nil {
				return waits.result, waits.err
			}
			if again {
				i = 0
			}
			continue
		}
		c.recorder.record(ctx, c.instance, outcome.Events...)
		c.status.passed(phases[i].Name)
		i++
	}
	outcome := c.journeys.join.Finish(&c.instance.Status, c.jitter())
	c.place.release()
	c.life.failedIn = ""
	c.report(ctx, outcome)
	c.recorder.record(ctx, c.instance, setupEvent(c.instance))
	return c.result(ctx, outcome.After)
}

// ending is how a reconcile ends that goes no further; nil is one that goes on.
type ending struct {
	result ctrl.Result
	err    error
}

// onError ends a reconcile with an error, if any.
func onError(err error) *ending {
	if err == nil {
		return nil
	}
	return &ending{err: err}
}

// awaitPlace has a join wait that may not go on; nil is one that may. One that is upgraded while its node is down, and
// finds the budget full, waits until there is room: at the revision that it held nothing is to be gained.
func (c joining) awaitPlace(ctx context.Context) *ending {
	verdict, err := c.mayJoin(ctx)
	if err != nil || verdict.Allowed {
		return onError(err)
	}
	if status := &c.instance.Status; c.place.isUndecided { // which takes a moment
	} else if verdict.Reason == "" && join.IsUpgradedWhileDown(status.Update) {
		c.endWork()
		status.Phase, c.life.failedIn = v1alpha1.PhasePending, ""
	} else if err = c.pauseRejoin(ctx); err != nil {
		return onError(err)
	}
	c.report(ctx, c.heldBack(ctx, verdict))
	result, err := c.result(ctx, budgetRetry)
	return &ending{result, err}
}

// heldBack is how a host is that may not be joined again yet.
func (c joining) heldBack(ctx context.Context, verdict policy.Verdict) journey.Outcome {
	_, unresponsive, err := c.journeys.health.Unresponsive(ctx, c.instance)
	if err == nil && unresponsive != nil {
		return journey.Wait(budgetRetry, unresponsive.Reason, "%s; its host waits for the rollout budget: %s",
			unresponsive.Detail, verdict.Shown())
	}
	if verdict.Reason == contract.ReasonInProgress { // it needs no join
		return journey.Wait(budgetRetry, verdict.Reason, "%s", verdict.Shown())
	}
	return journey.Wait(budgetRetry, cmp.Or(verdict.Reason, contract.ReasonBudgetExhausted),
		"waits for the rollout budget: %s", verdict.Shown())
}

// awaitTurn has an attempt wait until it is its turn; nil is one that may begin or go on. A node that serves gives its
// place back then, until its host is ready to be disrupted: one that can't be reached, or is slow, would keep it from
// others meanwhile. One that was ready once, and had lost its turn, keeps it, or those that need no time for that would
// always come first.
func (c joining) awaitTurn(ctx context.Context) *ending {
	status, session := &c.instance.Status, &c.life.session
	if err := c.upgradeWhileDown(ctx); err != nil {
		return onError(err)
	}
	isUnknown := status.JoinedTime == nil && !status.HasPlace() // its Node may serve: see join.restore
	if (session.Connected() || isUnknown) && !session.IsGranted {
		return nil // it asks when it is ready
	}
	begins := c.journeys.join.Resume(ctx, c.instance, session) == 0
	if waits := c.awaitPlace(ctx); waits != nil || !begins {
		return waits
	}
	isReached := c.life.isReached
	if c.life.isReached = false; !status.HasPlace() {
		return nil
	}
	node, serves, err := c.parts.InService(ctx, c.instance)
	if err == nil && serves && !isReached && join.IsUntouched(status, node) {
		c.place.release() // with the write that begins the attempt
		session.IsGranted = false
	}
	return onError(err)
}

// askForPlace asks for the place of a host that is ready to be disrupted; waits is nil once it may be. again says that
// it is to be joined at another revision than it was made ready for.
func (c joining) askForPlace(ctx context.Context) (again bool, waits *ending) {
	status := &c.instance.Status
	revision := journey.JoinRevision(status)
	if waits = c.awaitPlace(ctx); waits != nil {
		c.life.isReached = waits.err == nil
		return false, waits
	}
	if c.life.session.IsGranted = true; status.HasPlace() {
		c.recorder.record(ctx, c.instance, journey.RejoinEvent(status))
	}
	return journey.JoinRevision(status) != revision, nil
}

// recovered says that the node of a host that is being joined again needs that no more. It is
// then looked after again.
func (c joining) recovered(ctx context.Context) (bool, error) {
	status := &c.instance.Status
	if status.HasPlace() || status.JoinedTime == nil ||
		c.life.session.Connected() && join.IsOverSSH(status.Update) && !join.IsUpgradedWhileDown(status.Update) {
		// it serves until it has its place
		return false, nil
	}
	well, err := c.journeys.health.RecoversByItself(ctx, c.instance)
	if err != nil || !well {
		return false, err
	}
	return true, c.pauseRejoin(ctx)
}

// pauseRejoin ends the work at a host whose join waits, or is not needed any more, and has it in service. One whose
// node is Ready at the revision that it was taken to stays there.
func (c *reconciliation) pauseRejoin(ctx context.Context) error {
	node, err := c.parts.Nodes.Ours(ctx, c.instance)
	if err != nil {
		return err
	}
	if join.HasReachedRevision(&c.instance.Status, node) {
		join.EndUpgradeWhileDown(&c.instance.Status)
	}
	c.endWork()
	c.journeys.join.PauseRejoin(&c.instance.Status)
	c.life.failedIn = ""
	return nil
}
