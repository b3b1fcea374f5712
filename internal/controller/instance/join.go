package instance

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/join"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// joining is the reconcile of a host that joins. Before the first phase that may disrupt a node in service, it requests
// a slot in the rollout budget.
type joining struct{ *reconciliation }

// mayJoin decides whether a host may join. If its node is in service, the join needs a slot in the rollout budget.
// After a failed attempt, the host needs a new slot, because other hosts may have got the earlier one. If the node was
// out of service for long, only a change of its revision needs a slot. A host never joins at a new revision whose
// rollout is halted.
func (c joining) mayJoin(ctx context.Context) (policy.Verdict, error) {
	free := policy.Verdict{Allowed: true, Why: "no pods are disrupted"}
	status := &c.instance.Status
	known, err := c.parts.Nodes.Get(ctx, status.NodeName)
	if err != nil || status.HasSlot() || c.disruptsNoPods(known) {
		return free, err
	}
	node, serves, err := c.parts.InService(ctx, c.instance)
	if err != nil || !serves && !status.Joined() {
		return free, err
	}
	if update := join.OverSSH(status); update != nil && !serves {
		if join.WasDown(update, c.parts.Observed.NotReady(node)) {
			verdict, err := c.mayTurn(ctx, update.Revision)
			if err != nil || verdict.Allowed || c.slot.isUndecided {
				return verdict, err
			}
		}
		join.GiveUp(status)
	}
	halted, err := c.halted(ctx, c.parts.Revisions.NotHeld(ctx, c.instance))
	switch {
	case err != nil || halted != "":
		return policy.Verdict{Reason: contract.ReasonRolloutHalted, Why: halted}, err
	case serves:
		return c.slot.take(ctx, func() {})
	}
	return free, nil
}

// disruptsNoPods reports whether the join disrupts no pods: the host has no pods, the join has already replaced the
// daemon's key, or an upgrade over SSH only waits for the Node.
func (c joining) disruptsNoPods(node *corev1.Node) bool {
	status := &c.instance.Status
	return journey.IsFirstJoin(status, node) || c.memory.session.HasReplacedKey() ||
		join.OverSSH(status) != nil && status.IsRequested() && status.Phase == v1alpha1.PhaseConfirming
}

// mayTurn decides whether a host whose node is down may change to another revision. Its slot delays no other node,
// because the node is already unavailable.
func (c joining) mayTurn(ctx context.Context, revision string) (policy.Verdict, error) {
	config, err := c.config(ctx)
	if err != nil {
		return policy.Verdict{}, err
	}
	if closed := policy.Closed(config.Spec.Rollout, c.now()); closed != "" && !c.instance.Status.HasSlot() {
		return policy.Verdict{Reason: contract.ReasonMaintenanceWindowClosed, Why: closed}, nil
	}
	if halted, err := c.halted(ctx, revision); err != nil || halted != "" {
		return policy.Verdict{Reason: contract.ReasonRolloutHalted, Why: halted}, err
	}
	return c.slot.take(ctx, func() {})
}

func (c joining) run(ctx context.Context) (ctrl.Result, error) {
	// A host that joins for the first time requests a slot only when its join is about to disrupt pods.
	if status := &c.instance.Status; status.Joined() || status.HasSlot() || c.memory.session.IsGranted {
		if well, err := c.recovered(ctx); err != nil {
			return ctrl.Result{}, err
		} else if well {
			return c.check(ctx)
		}
		if waits := c.awaitTurn(ctx); waits != nil {
			return waits.result, waits.err
		}
	}
	phases := c.journeys.join.Phases()
	work, ended := c.interruptible(ctx, c.memory)
	defer ended()
	for i := c.journeys.join.Resume(ctx, c.instance, &c.memory.session); i < len(phases); {
		c.status.enter(phases[i].Name, i == 0)
		outcome, err := c.runPhase(ctx, work, phases[i])
		switch {
		case err != nil:
			return ctrl.Result{}, err
		case errors.Is(context.Cause(work), errLeaving):
			c.stop()
			return c.result(ctx, 0) // the event about the deletion is already queued
		case outcome.IsFailed():
			return c.failed(ctx, outcome)
		case outcome.IsWaiting():
			c.memory.failedIn = "" // the status now shows why the host waits, not the earlier failure
			if outcome.Endless {
				c.slot.release()
			}
			c.report(ctx, outcome)
			return c.result(ctx, outcome.After)
		case outcome.Then == journey.Save:
			continue
		case outcome.Then == journey.Confirm:
			c.status.passed(phases[i].Name)
			i = len(phases) - 1
			continue
		case outcome.Then == journey.TakeSlot:
			again, waits := c.takeSlot(ctx)
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
	c.slot.release()
	c.memory.failedIn = ""
	c.report(ctx, outcome)
	c.recorder.record(ctx, c.instance, setupEvent(c.instance))
	return c.result(ctx, outcome.After)
}

// showAfter is how long a phase may last before the status shows it.
const showAfter = 2 * time.Second

// runPhase runs a phase. It saves the status only if the phase requests this, or takes longer than showAfter.
func (c joining) runPhase(ctx, work context.Context, phase join.Phase) (journey.Outcome, error) {
	shown, written := c.record.copy(), make(chan error, 1)
	timer := time.AfterFunc(showAfter, func() { written <- shown.save(ctx) })
	outcome := phase.Run(work, c.instance, &c.memory.session)
	var err error
	if !timer.Stop() {
		err = <-written
		c.instance.ResourceVersion, c.record.saved = shown.instance.ResourceVersion, shown.saved
	}
	if err == nil && outcome.Then == journey.Save {
		err = c.record.save(ctx)
	}
	return outcome, err
}

// ending is the result of a reconcile that ends. A nil *ending means that the reconcile continues.
type ending struct {
	result ctrl.Result
	err    error
}

func onError(err error) *ending {
	if err == nil {
		return nil
	}
	return &ending{err: err}
}

// awaitSlot returns nil if the join may continue.
func (c joining) awaitSlot(ctx context.Context) *ending {
	verdict, err := c.mayJoin(ctx)
	if err != nil || verdict.Allowed {
		return onError(err)
	}
	if !c.slot.isUndecided { // a pending decision takes only a moment
		c.pauseRejoin()
	}
	c.report(ctx, c.heldBack(ctx, verdict))
	result, err := c.result(ctx, budgetRetry)
	return &ending{result, err}
}

func (c joining) heldBack(ctx context.Context, verdict policy.Verdict) journey.Outcome {
	_, unresponsive, err := c.journeys.health.Unresponsive(ctx, c.instance)
	if err == nil && unresponsive != nil {
		return journey.Wait(budgetRetry, unresponsive.Reason, "%s; its host waits for the rollout budget: %s",
			unresponsive.Detail, verdict.Shown())
	}
	return journey.Wait(budgetRetry, cmp.Or(verdict.Reason, contract.ReasonBudgetExhausted),
		"waits for the rollout budget: %s", verdict.Shown())
}

// awaitTurn returns nil if an attempt may begin or continue. At the beginning of an attempt, a node in service gives up
// its slot in the rollout budget: a slow host must not block the slot while it prepares. Exception: if the host was
// ready to be disrupted before, but had to wait for the slot, it keeps the slot. Otherwise, faster hosts would always
// be first.
func (c joining) awaitTurn(ctx context.Context) *ending {
	status, session := &c.instance.Status, &c.memory.session
	if status.Joined() && !session.Connected() {
		if err := c.journeys.join.Turn(ctx, c.instance); err != nil {
			return onError(err)
		}
	}
	if session.Connected() && !session.IsGranted {
		return nil // the host requests a slot when it is ready
	}
	begins := c.journeys.join.Resume(ctx, c.instance, session) == 0
	if waits := c.awaitSlot(ctx); waits != nil || !begins {
		return waits
	}
	isReached := c.memory.isReached
	if c.memory.isReached = false; !status.HasSlot() {
		return nil
	}
	node, serves, err := c.parts.InService(ctx, c.instance)
	isToldNothing := !status.Upgrade().Begun() || join.OverSSH(status) != nil && !status.IsRequested()
	if err == nil && serves && !isReached && isToldNothing && session.RebootTime.IsZero() &&
		node.Annotations[contract.CordonedAnnotation] == "" {
		c.slot.release()
		session.IsGranted = false
		err = c.record.save(ctx)
	}
	return onError(err)
}

// takeSlot requests a slot for a host that is ready to be disrupted. If the host gets the slot, the result `waits` is
// nil. If the host must prepare again to join at another revision, `again` is true.
func (c joining) takeSlot(ctx context.Context) (again bool, waits *ending) {
	status := &c.instance.Status
	revision := journey.JoinRevision(status)
	if waits = c.awaitSlot(ctx); waits != nil {
		c.memory.isReached = waits.err == nil
		return false, waits
	}
	if c.memory.session.IsGranted = true; status.HasSlot() {
		c.recorder.record(ctx, c.instance, journey.RejoinEvent(status))
	}
	return journey.JoinRevision(status) != revision, nil
}

// recovered reports whether a host that waits to join again has recovered, and needs no join. It returns false while
// the first attempt only waits for the daemon's report, and while the operator prepares an upgrade over SSH.
func (c joining) recovered(ctx context.Context) (bool, error) {
	status := &c.instance.Status
	isLast := status.Phase == v1alpha1.PhaseConfirming && status.Failures == 0 && len(status.BootstrapCredentials) > 0
	if status.HasSlot() || !status.Joined() || isLast ||
		c.memory.session.Connected() && join.OverSSH(status) != nil {
		return false, nil
	}
	well, err := c.journeys.health.RecoversByItself(ctx, c.instance)
	if err != nil || !well {
		return false, err
	}
	c.pauseRejoin()
	return true, nil
}

// pauseRejoin ends the work at a host whose join must wait or is no longer needed. It returns the host to service.
func (c *reconciliation) pauseRejoin() {
	c.endWork()
	c.journeys.join.PauseRejoin(&c.instance.Status)
	c.memory.failedIn = ""
}
