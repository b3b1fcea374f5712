package policy

import (
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// UpgradeFacts are the input of a decision about the next step of an upgrade or a reboot.
type UpgradeFacts struct {
	// HasPlace says that the node has a place in the rollout budget; Drains that its pods must leave
	// before the switch; HasPrevious that there is another revision to go back to.
	HasPlace, Drains, HasPrevious bool
	// OverSSH says that the host is to be joined again instead, because its daemon can't do it.
	OverSSH bool
	StagingFacts
	DrainFacts
	// NothingSince is since when the daemon gets nothing of the payload, or has reported nothing of
	// it; zero while it gets something.
	NothingSince Since
	// StepSince is since when the node is at its step; SwitchSince since when the daemon is to have
	// the revision; zero while it is not.
	StepSince, SwitchSince Since
	// IsRequested says that the daemon was told to apply the revision of its step, or to reboot. IsApplied says that it
	// reports the revision, or another boot. Refused says that it reports that it failed and went back.
	IsRequested, IsApplied, Refused bool
	// IsSwitched says that the daemon was told to leave its previous revision, or is about to be, or that the host went
	// down for a reboot.
	IsSwitched bool
	ResponseFacts
	// Lacks is why the node is not verified; empty when it is Ready with its revision, and settles.
	Lacks contract.Reason
	// IsSettled says that it was so for the settling time.
	IsSettled bool
	// VerifyTimeout is the user's bound, DaemonTimeout that of a daemon that reports nothing.
	VerifyTimeout, DaemonTimeout time.Duration
}

// isLate reports whether what began then has taken longer than it may.
func (f UpgradeFacts) isLate(since Since, limit time.Duration, now time.Time) bool {
	return since.Left(limit, f.DaemonTimeout/2, now) <= 0
}

// ResponseFacts say what a daemon that reports nothing may mean.
type ResponseFacts struct {
	// IsDownUnreported says that it has reported nothing of the revision since it was told, and that the node has not
	// been Ready; IsUnresponsive that it has never reported anything of it, although kubelet is well.
	IsDownUnreported, IsUnresponsive bool
}

// StagingFacts say how far the daemon is with the payload.
type StagingFacts struct {
	// CanStage says that the daemon fetches payload by itself; IsStageRequested and IsStaged that it
	// was told to, and did.
	CanStage, IsStageRequested, IsStaged bool
}

// DrainFacts say how far the node is with its pods.
type DrainFacts struct {
	// Drain is what the drain came to; Uncordoned that somebody lifted the cordon; IsOut that the node
	// has been not Ready for so long that its pods are lost; HasLeft that it was told to leave its
	// previous revision already.
	Drain                      DrainState
	Uncordoned, IsOut, HasLeft bool
	// IsUndrained says that the daemon was not told the revision yet, and that pods were not drained just now.
	IsUndrained bool
}

// DrainState is how far a drain is.
type DrainState string

// States of a drain.
const (
	DrainUnknown DrainState = ""
	DrainRunning DrainState = "Running"
	DrainBlocked DrainState = "Blocked"
	DrainWaiting DrainState = "Waiting" // for the API server
	Drained      DrainState = "Drained"
)

// UpgradeAction is what is done at a step.
type UpgradeAction string

// Actions of an upgrade. After one that only learns something, the table is asked again.
const (
	ActionWait           UpgradeAction = ""
	ActionRequestStaging UpgradeAction = "have the daemon fetch the payload"
	ActionUseSSH         UpgradeAction = "note that the host is joined again over SSH"
	ActionTakePlace      UpgradeAction = "ask for a place in the rollout budget"
	ActionJoin           UpgradeAction = "join the host again over SSH"
	ActionDrain          UpgradeAction = "cordon the node, and evict its pods"
	ActionSwitch         UpgradeAction = "have the daemon apply the revision, or reboot the host"
	ActionFail           UpgradeAction = "fail: see below"
	ActionReturn         UpgradeAction = "return the node to service, and try again later"
	ActionRollBack       UpgradeAction = "note the failure of the revision"
	ActionRollBackOnly   UpgradeAction = "roll back, and blame no revision"
	ActionRestore        UpgradeAction = "have the daemon apply the previous revision"
	ActionFinish         UpgradeAction = "return the node to service; or reboot it, if that was requested meanwhile"
)

// StepFailed is where a step that fails goes on; it is none of the status.
const StepFailed v1alpha1.Step = "Failed"

// UpgradeRow is one row of the table.
type UpgradeRow struct {
	Step v1alpha1.Step
	// When says in words when the row holds; the first one that holds counts.
	When string
	// Next is the step that follows; the same one for a wait.
	Next   v1alpha1.Step
	Action UpgradeAction
	// Reason is what is reported meanwhile, or what the step fails with; empty where the facts have it.
	Reason contract.Reason
	holds  func(f UpgradeFacts, now time.Time) bool
}

// UpgradeRows are the steps from one revision to another, and through a reboot. A reboot has no payload to stage and no
// revision to go back to.
func UpgradeRows() []UpgradeRow {
	return append(upgradeBegins(), upgradeEnds()...)
}

// upgradeBegins are the steps at which the node is at its previous revision.
func upgradeBegins() []UpgradeRow {
	const staging, waiting, draining, switching = v1alpha1.StepStaging, v1alpha1.StepWaiting, v1alpha1.StepDraining,
		v1alpha1.StepSwitching
	return []UpgradeRow{
		{staging, "the host is to be joined again, or has the payload", waiting, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.OverSSH || f.IsStaged }},
		{staging, "the daemon can't fetch payload, or is of a release too far away", waiting, ActionUseSSH, "",
			func(f UpgradeFacts, _ time.Time) bool { return !f.CanStage }},
		{staging, "the daemon was not told yet", staging, ActionRequestStaging, contract.ReasonStaging,
			func(f UpgradeFacts, _ time.Time) bool { return !f.IsStageRequested }},
		{staging, "the node has its place, and verifyTimeout is over", StepFailed, ActionFail,
			contract.ReasonUpdateFailed,
			func(f UpgradeFacts, now time.Time) bool {
				return f.HasPlace && f.isLate(f.StepSince, f.VerifyTimeout, now)
			}},
		{staging, "the daemon has got nothing for as long as --daemon-timeout", waiting, ActionUseSSH, "",
			func(f UpgradeFacts, now time.Time) bool {
				return !f.NothingSince.IsZero() && f.isLate(f.NothingSince, f.DaemonTimeout, now)
			}},
		{staging, "otherwise", staging, ActionWait, contract.ReasonStaging, always},

		{waiting, "the node has no place", waiting, ActionTakePlace, contract.ReasonBudgetExhausted,
			func(f UpgradeFacts, _ time.Time) bool { return !f.HasPlace }},
		{waiting, "the host is to be joined again", switching, ActionJoin, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.OverSSH }},
		{waiting, "pods would feel the switch", draining, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.Drains }},
		{waiting, "otherwise", switching, ActionWait, "", always},

		{draining, "somebody uncordoned the node, which was told to leave its revision", switching, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.Uncordoned && f.HasLeft }},
		{draining, "somebody uncordoned the node", StepFailed, ActionFail, contract.ReasonUncordoned,
			func(f UpgradeFacts, _ time.Time) bool { return f.Uncordoned }},
		{draining, "it is to be seen how many pods are left", draining, ActionDrain, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.Drain == DrainUnknown }},
		{draining, "no pods are left, or the node is out of service, or they are blocked and it was told to " +
			"leave its revision", switching, ActionWait, "", func(f UpgradeFacts, _ time.Time) bool {
			pods := f.Drain == DrainBlocked || f.Drain == DrainRunning
			return f.Drain == Drained || f.IsOut && pods || f.HasLeft && f.Drain == DrainBlocked
		}},
		{draining, "pods are left after drainTimeout", StepFailed, ActionFail, contract.ReasonDrainBlocked,
			func(f UpgradeFacts, _ time.Time) bool { return f.Drain == DrainBlocked }},
		{draining, "otherwise", draining, ActionWait, contract.ReasonDraining, always},
	}
}

// upgradeEnds are the steps at which the daemon applies a revision.
func upgradeEnds() []UpgradeRow {
	const waiting, draining, switching, verifying, rollingBack = v1alpha1.StepWaiting, v1alpha1.StepDraining,
		v1alpha1.StepSwitching, v1alpha1.StepVerifying, v1alpha1.StepRollingBack
	late := func(f UpgradeFacts, now time.Time) bool {
		began := f.StepSince
		if !f.SwitchSince.IsZero() {
			began = f.SwitchSince
		}
		return f.isLate(began, f.VerifyTimeout, now)
	}
	return []UpgradeRow{
		{switching, "pods would feel it, the daemon was not told yet, and pods may have come since they were drained",
			draining, ActionWait, "", func(f UpgradeFacts, _ time.Time) bool { return f.IsUndrained }},
		{switching, "the daemon was not told yet, now that the pods have left", switching, ActionSwitch, "",
			func(f UpgradeFacts, _ time.Time) bool { return !f.IsRequested }},
		{switching, "the daemon reports the revision, or another boot", verifying, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.IsApplied }},
		// It may have been dead before. At the end of a join it is known whether it reports at this revision; a host
		// that can't be joined in as much time again counts as one that failed.
		{switching, "verifyTimeout is over, the node is Ready, and the daemon has never reported anything of the " +
			"revision", switching, ActionJoin, "",
			func(f UpgradeFacts, now time.Time) bool {
				return f.IsUnresponsive && late(f, now) && !f.isLate(f.SwitchSince, 2*f.VerifyTimeout, now)
			}},
		{switching, "the daemon reports that it went back", StepFailed, ActionFail, contract.ReasonUpdateFailed,
			func(f UpgradeFacts, _ time.Time) bool { return f.Refused }},
		{switching, "verifyTimeout is over", StepFailed, ActionFail, contract.ReasonUpdateFailed, late},
		{switching, "otherwise", switching, ActionWait, contract.ReasonRevisionPending, always},

		{verifying, "the node is not Ready, or kubelet or the daemon report otherwise, and verifyTimeout is over",
			StepFailed,
			ActionFail, contract.ReasonUpdateFailed,
			func(f UpgradeFacts, now time.Time) bool { return f.Lacks != "" && late(f, now) }},
		{verifying, "the node is not Ready, or kubelet or the daemon report otherwise", verifying, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.Lacks != "" }},
		{verifying, "it has been well for settleTime", "", ActionFinish, contract.ReasonNodeReady,
			func(f UpgradeFacts, _ time.Time) bool { return f.IsSettled }},
		{verifying, "otherwise", verifying, ActionWait, contract.ReasonSettling, always},

		{StepFailed, "the daemon was not told the revision, so the node is at the one that it held; or the host did " +
			"not go down for its reboot", waiting,
			ActionReturn,
			"", func(f UpgradeFacts, _ time.Time) bool { return !f.IsSwitched }},
		{StepFailed, "there is no other revision to go back to; or the host does not come back from its reboot",
			StepFailed, ActionWait, "",
			func(f UpgradeFacts, _ time.Time) bool { return !f.HasPrevious }},
		{StepFailed, "the daemon has reported nothing of the revision, and the node has not been Ready since the " +
			"daemon was told", rollingBack, ActionRollBackOnly, "",
			func(f UpgradeFacts, _ time.Time) bool { return f.IsDownUnreported }},
		{StepFailed, "otherwise", rollingBack, ActionRollBack, "", always},

		{rollingBack, "the daemon was not told yet", rollingBack, ActionRestore, "",
			func(f UpgradeFacts, _ time.Time) bool { return !f.IsRequested }},
		{rollingBack, "the node is Ready at the previous revision", waiting, ActionReturn, contract.ReasonUpdateFailed,
			func(f UpgradeFacts, _ time.Time) bool { return f.Lacks == "" }},
		// Unlike isLate: it only reports, and says so once, whoever leads meanwhile.
		{rollingBack, "verifyTimeout is over", rollingBack, ActionWait, contract.ReasonRollbackTimedOut,
			func(f UpgradeFacts, now time.Time) bool { return now.Sub(f.StepSince.Began) >= f.VerifyTimeout }},
		{rollingBack, "otherwise", rollingBack, ActionWait, contract.ReasonUpdateFailed, always},
	}
}

func always(UpgradeFacts, time.Time) bool { return true }

// NextUpgrade decides what comes next in an upgrade or a reboot: the first row of its step that holds.
func NextUpgrade(step v1alpha1.Step, facts UpgradeFacts, now time.Time) UpgradeRow {
	for _, row := range UpgradeRows() {
		if row.Step == step && row.holds(facts, now) {
			return row
		}
	}
	return UpgradeRow{Step: step, Next: v1alpha1.StepWaiting} // a step that no release of ours has written
}
