package policy

import (
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// UpgradeFacts are the input of a decision about the next step of an upgrade or a reboot.
type UpgradeFacts struct {
	// HasSlot says that the node has a slot in the rollout budget. Drains says that the node must be drained before the
	// switch. HasPrevious says that there is a different revision to roll back to.
	HasSlot, Drains, HasPrevious bool
	// OverSSH says that the host must join again over SSH, because its daemon can't apply the revision.
	OverSSH bool
	StagingFacts
	DrainFacts
	// NothingSince is when the daemon stopped receiving data of the payload, or stopped reporting about it. It is zero
	// while the daemon receives data.
	NothingSince Since
	// StepSince is when the current step began. For the step of verification, this is when the operator requested the
	// revision from the daemon.
	StepSince Since
	// IsRequested says that the operator requested the revision of this step, or the reboot, from the daemon. IsApplied
	// says that the daemon reports the revision, or a new boot. Refused says that, according to the daemon, the
	// revision failed and the daemon rolled back.
	IsRequested, IsApplied, Refused bool
	// IsSwitched says that the operator has told the daemon, or is about to tell it, to leave its previous revision.
	// For a reboot, it says that the host went down.
	IsSwitched bool
	ResponseFacts
	// Lacks is the reason why the node is not verified. It is empty if the node is Ready at its revision, even before
	// the settling time is over.
	Lacks contract.Reason
	// IsSettled says that the node has been Ready at its revision for the settling time.
	IsSettled bool
	// VerifyTimeout is the user's limit. DaemonTimeout is the limit for a daemon that reports nothing.
	VerifyTimeout, DaemonTimeout time.Duration
}

func (f UpgradeFacts) isLate(since Since, limit time.Duration, now time.Time) bool {
	return since.Left(limit, f.DaemonTimeout/2, now) <= 0
}

// ResponseFacts distinguish why a daemon reports nothing.
type ResponseFacts struct {
	// IsDownUnreported says that, since the request, the daemon has reported nothing about the revision and the node
	// has not been Ready. IsUnresponsive says that the daemon has never reported anything about the revision, although
	// kubelet is healthy.
	IsDownUnreported, IsUnresponsive bool
}

// StagingFacts describe the progress of the daemon with the payload.
type StagingFacts struct {
	// CanStage says that the daemon can fetch the payload. IsStageRequested says that the operator told the daemon to
	// fetch it. IsStaged says that the payload is on the host.
	CanStage, IsStageRequested, IsStaged bool
}

// DrainFacts describe the progress of the drain.
type DrainFacts struct {
	// Drain is the state of the drain. Uncordoned says that a user removed the cordon. IsOut says that the node has not
	// been Ready for so long that its pods count as lost. HasLeft says that the operator has already told the daemon to
	// leave its previous revision.
	Drain                      DrainState
	Uncordoned, IsOut, HasLeft bool
	// IsUndrained says that the revision wasn't requested yet, and that pods may have started since the drain.
	IsUndrained bool
}

// DrainState is the progress of a drain.
type DrainState string

// States of a drain.
const (
	DrainUnknown DrainState = ""
	DrainRunning DrainState = "Running"
	DrainBlocked DrainState = "Blocked"
	DrainWaiting DrainState = "Waiting" // for the API server to answer
	Drained      DrainState = "Drained"
)

// UpgradeAction is what the operator does in a step.
type UpgradeAction string

// Actions of an upgrade. After an action that only learns a fact, NextUpgrade is called again with this fact.
const (
	ActionWait           UpgradeAction = ""
	ActionRequestStaging UpgradeAction = "request that the daemon fetches the payload"
	ActionTakeSlot       UpgradeAction = "request a slot in the rollout budget"
	ActionJoin           UpgradeAction = "join the host again"
	ActionDrain          UpgradeAction = "cordon the node, and evict its pods"
	ActionSwitch         UpgradeAction = "request the revision, or the reboot, from the daemon"
	ActionFail           UpgradeAction = "fail: see the step Failed"
	ActionReturn         UpgradeAction = "return the node to service, and try again later"
	ActionRollBack       UpgradeAction = "record the failure of the revision"
	ActionRollBackOnly   UpgradeAction = "roll back, without recording a failure of the revision"
	ActionRestore        UpgradeAction = "request the previous revision from the daemon"
	ActionFinish         UpgradeAction = "return the node to service; or reboot it if a reboot was requested during " +
		"the upgrade"
)

// StepFailed is the next step after a failure. It never appears in the status.
const StepFailed v1alpha1.Step = "Failed"

// UpgradeRow is one row of the table that NextUpgrade evaluates.
type UpgradeRow struct {
	Step v1alpha1.Step
	// The field When is the condition of the row, in words. In each step, the first row whose condition is met applies.
	When string
	// Next is the next step. If the operator waits, Next is the current step.
	Next   v1alpha1.Step
	Action UpgradeAction
	// Reason is the reported reason of a wait or a failure. It is empty if the facts contain the reason.
	Reason contract.Reason
	holds  func(f UpgradeFacts, now time.Time) bool
}

// UpgradeRows returns the rows for an upgrade from one revision to another, and for a reboot. A reboot has no payload
// to stage and no revision to roll back to.
func UpgradeRows() []UpgradeRow {
	return append(upgradeBegins(), upgradeEnds()...)
}

// upgradeBegins returns the rows of the first steps, while the node still has its previous revision.
func upgradeBegins() []UpgradeRow {
	const staging, waiting, draining, switching = v1alpha1.StepStaging, v1alpha1.StepWaiting, v1alpha1.StepDraining,
		v1alpha1.StepSwitching
	return []UpgradeRow{
		{staging, "the host must be joined again, or has the payload", waiting, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.OverSSH || f.IsStaged }},
		{staging, "the daemon can't fetch payload, or its release is too far from the operator's " +
			"release", waiting, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return !f.CanStage }},
		{staging, "the payload was not requested yet", staging, ActionRequestStaging, contract.ReasonStaging,
			func(f UpgradeFacts, _ time.Time) bool { return !f.IsStageRequested }},
		{staging, "the node has its slot, and verifyTimeout is over", StepFailed, ActionFail,
			contract.ReasonUpdateFailed,
			func(f UpgradeFacts, now time.Time) bool {
				return f.HasSlot && f.isLate(f.StepSince, f.VerifyTimeout, now)
			}},
		{staging, "the daemon has received nothing for --daemon-timeout", waiting, ActionWait, "",
			func(f UpgradeFacts, now time.Time) bool {
				return !f.NothingSince.IsZero() && f.isLate(f.NothingSince, f.DaemonTimeout, now)
			}},
		{staging, "otherwise", staging, ActionWait, contract.ReasonStaging, always},

		{waiting, "the node has no slot", waiting, ActionTakeSlot, contract.ReasonBudgetExhausted,
			func(f UpgradeFacts, _ time.Time) bool { return !f.HasSlot }},
		{waiting, "the host must be joined again: its daemon does not respond, or does not get the payload", switching,
			ActionJoin, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.OverSSH }},
		{waiting, "the switch affects pods", draining, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.Drains }},
		{waiting, "otherwise", switching, ActionWait, "", always},

		{draining, "a user uncordoned the node, and the operator already requested the new " +
			"revision", switching, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.Uncordoned && f.HasLeft }},
		{draining, "a user uncordoned the node", StepFailed, ActionFail, contract.ReasonUncordoned,
			func(f UpgradeFacts, _ time.Time) bool { return f.Uncordoned }},
		{draining, "the operator has not checked yet how many pods are left", draining, ActionDrain, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.Drain == DrainUnknown }},
		{draining, "no pods are left; or the node is out of service; or drainTimeout is over, and the operator " +
			"already requested the revision", switching, ActionWait, "", func(f UpgradeFacts, _ time.Time) bool {
			pods := f.Drain == DrainBlocked || f.Drain == DrainRunning
			return f.Drain == Drained || f.IsOut && pods || f.HasLeft && f.Drain == DrainBlocked
		}},
		{draining, "pods are left after drainTimeout", StepFailed, ActionFail, contract.ReasonDrainBlocked,
			func(f UpgradeFacts, _ time.Time) bool { return f.Drain == DrainBlocked }},
		{draining, "otherwise", draining, ActionWait, contract.ReasonDraining, always},
	}
}

// upgradeEnds returns the rows of the later steps, while the daemon applies a revision.
func upgradeEnds() []UpgradeRow {
	const waiting, draining, switching, verifying, rollingBack = v1alpha1.StepWaiting, v1alpha1.StepDraining,
		v1alpha1.StepSwitching, v1alpha1.StepVerifying, v1alpha1.StepRollingBack
	late := func(f UpgradeFacts, now time.Time) bool { return f.isLate(f.StepSince, f.VerifyTimeout, now) }
	return []UpgradeRow{
		{switching, "the switch affects pods, the operator has not requested the switch yet, and pods may have " +
			"started since the drain",
			draining, ActionWait, "", func(f UpgradeFacts, _ time.Time) bool { return f.IsUndrained }},
		{switching, "the operator has not requested the revision or the reboot yet", switching, ActionSwitch, "",
			func(f UpgradeFacts, _ time.Time) bool { return !f.IsRequested }},
		{switching, "the daemon reports the revision, or a new boot", verifying, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.IsApplied }},
		// The daemon may have died before it got the request. A join shows whether the daemon now reports this
		// revision. If the host can't join within another verifyTimeout, the upgrade fails.
		{switching, "verifyTimeout is over, the node is Ready, and the daemon has reported nothing about the " +
			"revision", switching, ActionJoin, "",
			func(f UpgradeFacts, now time.Time) bool {
				return f.IsUnresponsive && late(f, now) && !f.isLate(f.StepSince, 2*f.VerifyTimeout, now)
			}},
		{switching, "the daemon reports that it rolled back", StepFailed, ActionFail, contract.ReasonUpdateFailed,
			func(f UpgradeFacts, _ time.Time) bool { return f.Refused }},
		{switching, "verifyTimeout is over", StepFailed, ActionFail, contract.ReasonUpdateFailed, late},
		{switching, "otherwise", switching, ActionWait, contract.ReasonRevisionPending, always},

		{verifying, "the node is not Ready at the revision, and verifyTimeout is over",
			StepFailed,
			ActionFail, contract.ReasonUpdateFailed,
			func(f UpgradeFacts, now time.Time) bool { return f.Lacks != "" && late(f, now) }},
		{verifying, "the node is not Ready at the revision", verifying, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.Lacks != "" }},
		{verifying, "the node has been healthy for settleTime", "", ActionFinish, contract.ReasonNodeReady,
			func(f UpgradeFacts, _ time.Time) bool { return f.IsSettled }},
		{verifying, "otherwise", verifying, ActionWait, contract.ReasonSettling, always},

		{StepFailed, "the operator never requested the revision, so the node still has its old revision; or the host " +
			"did not begin its reboot", waiting,
			ActionReturn,
			"", func(f UpgradeFacts, _ time.Time) bool { return !f.IsSwitched }},
		{StepFailed, "there is no revision to roll back to; or the host does not come back from its reboot",
			StepFailed, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return !f.HasPrevious }},
		{StepFailed, "since the operator requested the revision, the daemon has not mentioned the revision, and the " +
			"node has not been Ready", rollingBack, ActionRollBackOnly, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.IsDownUnreported }},
		{StepFailed, "otherwise", rollingBack, ActionRollBack, "", always},

		{rollingBack, "the operator has not requested the previous revision yet", rollingBack, ActionRestore, "",
			func(f UpgradeFacts, _ time.Time) bool { return !f.IsRequested }},
		{rollingBack, "the node is Ready at the previous revision", waiting, ActionReturn, contract.ReasonUpdateFailed,
			func(f UpgradeFacts, _ time.Time) bool { return f.Lacks == "" }},
		// Don't use isLate here: this row only reports the delay, and a new leader must not report it a second time.
		{rollingBack, "verifyTimeout is over", rollingBack, ActionWait, contract.ReasonRollbackTimedOut,
			func(f UpgradeFacts, now time.Time) bool { return now.Sub(f.StepSince.Began) >= f.VerifyTimeout }},
		{rollingBack, "otherwise", rollingBack, ActionWait, contract.ReasonUpdateFailed, always},
	}
}

func always(UpgradeFacts, time.Time) bool { return true }

// NextUpgrade decides about an upgrade or a reboot. It returns the first row of the step that matches the facts.
func NextUpgrade(step v1alpha1.Step, facts UpgradeFacts, now time.Time) UpgradeRow {
	for _, row := range UpgradeRows() {
		if row.Step == step && row.holds(facts, now) {
			return row
		}
	}
	return UpgradeRow{Step: step, Next: v1alpha1.StepWaiting} // this operator doesn't know the step
}
