package policy

import (
	"maps"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Some row of each step must apply in every situation. So the last row of each step must have no condition.
func TestEveryStepOfAnUpgradeEndsWithARowThatHolds(t *testing.T) {
	t.Parallel()
	last := map[v1alpha1.Step]UpgradeRow{}
	for _, row := range UpgradeRows() {
		last[row.Step] = row
	}
	for _, step := range []v1alpha1.Step{v1alpha1.StepStaging, v1alpha1.StepWaiting, v1alpha1.StepDraining,
		v1alpha1.StepSwitching, v1alpha1.StepVerifying, v1alpha1.StepRollingBack, StepFailed} {
		if row, ok := last[step]; !ok || row.When != "otherwise" || !row.holds(UpgradeFacts{}, time.Time{}) {
			t.Errorf("the last row of %s is %+v", step, row)
		}
	}
}

// now is the time in all test cases.
func now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

func since(ago time.Duration) Since { return Since{Began: now().Add(-ago), Seen: now().Add(-ago)} }

// nextStep is a test case: the facts about a node, and its next step.
type nextStep struct {
	step   v1alpha1.Step
	facts  UpgradeFacts
	next   v1alpha1.Step
	action UpgradeAction
	reason contract.Reason
}

func nextStepsBeforeTheSwitch() map[string]nextStep {
	long := since(time.Hour)
	staged := StagingFacts{CanStage: true, IsStageRequested: true, IsStaged: true}
	stages := StagingFacts{CanStage: true, IsStageRequested: true}
	return map[string]nextStep{
		"a daemon that was not told to fetch": {v1alpha1.StepStaging,
			UpgradeFacts{StagingFacts: StagingFacts{CanStage: true}}, v1alpha1.StepStaging, ActionRequestStaging, contract.ReasonStaging},
		"a daemon that fetches": {v1alpha1.StepStaging, UpgradeFacts{StagingFacts: stages}, v1alpha1.StepStaging,
			ActionWait, contract.ReasonStaging},
		"a daemon that gets nothing for long": {v1alpha1.StepStaging, UpgradeFacts{StagingFacts: stages,
			NothingSince: long, DaemonTimeout: time.Minute}, v1alpha1.StepWaiting, ActionWait, ""},
		"a daemon that fetches for too long and has a slot": {v1alpha1.StepStaging, UpgradeFacts{StagingFacts: stages,
			HasSlot: true, StepSince: long, VerifyTimeout: time.Minute}, StepFailed, ActionFail,
			contract.ReasonUpdateFailed},
		"with a slot, over SSH": {v1alpha1.StepWaiting, UpgradeFacts{HasSlot: true, OverSSH: true, Drains: true},
			v1alpha1.StepSwitching, ActionJoin, ""},
		"with a slot, without an effect on pods": {v1alpha1.StepWaiting, UpgradeFacts{HasSlot: true}, v1alpha1.StepSwitching,
			ActionWait, ""},
		"a node that a user uncordoned": {v1alpha1.StepDraining, UpgradeFacts{DrainFacts: DrainFacts{
			Uncordoned: true, Drain: Drained}}, StepFailed, ActionFail, contract.ReasonUncordoned},
		"a node between two revisions that a user uncordoned": {v1alpha1.StepDraining,
			UpgradeFacts{DrainFacts: DrainFacts{Uncordoned: true, HasLeft: true}}, v1alpha1.StepSwitching, ActionWait,
			""},
		"pods that were not checked": {v1alpha1.StepDraining, UpgradeFacts{}, v1alpha1.StepDraining, ActionDrain,
			""},
		"staged":                    {v1alpha1.StepStaging, UpgradeFacts{StagingFacts: staged}, v1alpha1.StepWaiting, ActionWait, ""},
		"a daemon that can't stage": {v1alpha1.StepStaging, UpgradeFacts{}, v1alpha1.StepWaiting, ActionWait, ""},
		"without a slot": {v1alpha1.StepWaiting, UpgradeFacts{OverSSH: true, Drains: true}, v1alpha1.StepWaiting,
			ActionTakeSlot, contract.ReasonBudgetExhausted},
		"with a slot": {v1alpha1.StepWaiting, UpgradeFacts{HasSlot: true, Drains: true}, v1alpha1.StepDraining,
			ActionWait, ""},
		"blocked pods": {v1alpha1.StepDraining, UpgradeFacts{DrainFacts: DrainFacts{Drain: DrainBlocked}}, StepFailed,
			ActionFail, contract.ReasonDrainBlocked},
		"blocked pods of a node between two revisions": {v1alpha1.StepDraining,
			UpgradeFacts{DrainFacts: DrainFacts{Drain: DrainBlocked, HasLeft: true}}, v1alpha1.StepSwitching,
			ActionWait, ""},
		"pods of a node that is out of service": {v1alpha1.StepDraining,
			UpgradeFacts{DrainFacts: DrainFacts{Drain: DrainRunning, IsOut: true}}, v1alpha1.StepSwitching, ActionWait,
			""},
		"an API server that does not answer": {v1alpha1.StepDraining,
			UpgradeFacts{DrainFacts: DrainFacts{Drain: DrainWaiting, IsOut: true}}, v1alpha1.StepDraining, ActionWait,
			contract.ReasonDraining},
	}
}

func nextStepsFromTheSwitchOn() map[string]nextStep {
	long, just := since(time.Hour), since(time.Second)
	return map[string]nextStep{
		"a revision that was not requested": {v1alpha1.StepSwitching, UpgradeFacts{DrainFacts: DrainFacts{
			IsUndrained: true}}, v1alpha1.StepDraining, ActionWait, ""},
		"a drained node": {v1alpha1.StepSwitching, UpgradeFacts{}, v1alpha1.StepSwitching, ActionSwitch, ""},
		"a daemon that reports nothing yet": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true, StepSince: just,
			VerifyTimeout: time.Minute}, v1alpha1.StepSwitching, ActionWait, contract.ReasonRevisionPending},
		"a daemon that reports the revision, however late": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true,
			IsApplied: true, StepSince: long, VerifyTimeout: time.Minute}, v1alpha1.StepVerifying,
			ActionWait, ""},
		"a daemon that went back": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true, Refused: true,
			StepSince: just, VerifyTimeout: time.Minute}, StepFailed, ActionFail, contract.ReasonUpdateFailed},
		"not Ready yet": {v1alpha1.StepVerifying, UpgradeFacts{Lacks: contract.ReasonNodeNotReady, StepSince: just,
			VerifyTimeout: time.Minute}, v1alpha1.StepVerifying, ActionWait, ""},
		"never Ready": {v1alpha1.StepVerifying, UpgradeFacts{Lacks: contract.ReasonNodeNotReady,
			StepSince: long, VerifyTimeout: time.Minute}, StepFailed, ActionFail, contract.ReasonUpdateFailed},
		"Ready": {v1alpha1.StepVerifying, UpgradeFacts{}, v1alpha1.StepVerifying, ActionWait, contract.ReasonSettling},
		"Ready for long": {v1alpha1.StepVerifying, UpgradeFacts{IsSettled: true}, "", ActionFinish,
			contract.ReasonNodeReady},
		"a daemon that was not told to go back": {v1alpha1.StepRollingBack, UpgradeFacts{}, v1alpha1.StepRollingBack,
			ActionRestore, ""},
		"a node that is back": {v1alpha1.StepRollingBack, UpgradeFacts{IsRequested: true}, v1alpha1.StepWaiting,
			ActionReturn, contract.ReasonUpdateFailed},
		"a node that is rolled back": {v1alpha1.StepRollingBack, UpgradeFacts{IsRequested: true, StepSince: just,
			VerifyTimeout: time.Minute, Lacks: contract.ReasonUpdateFailed}, v1alpha1.StepRollingBack, ActionWait,
			contract.ReasonUpdateFailed},
		"too late": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true, StepSince: long,
			VerifyTimeout: time.Minute},
			StepFailed, ActionFail, contract.ReasonUpdateFailed},
		"too late, of a daemon that may have been dead before": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true, StepSince: since(90 * time.Second), VerifyTimeout: time.Minute,
			ResponseFacts: ResponseFacts{IsUnresponsive: true}}, v1alpha1.StepSwitching, ActionJoin, ""},
		"much too late, of a daemon that may have been dead before": {v1alpha1.StepSwitching,
			UpgradeFacts{IsRequested: true, StepSince: since(2 * time.Minute),
				VerifyTimeout: time.Minute, ResponseFacts: ResponseFacts{IsUnresponsive: true}}, StepFailed, ActionFail,
			contract.ReasonUpdateFailed},
		"a failure before the switch": {StepFailed, UpgradeFacts{HasPrevious: true}, v1alpha1.StepWaiting,
			ActionReturn, ""},
		"a failure after the switch": {StepFailed, UpgradeFacts{HasPrevious: true, IsSwitched: true},
			v1alpha1.StepRollingBack, ActionRollBack, ""},
		"a failure of which the daemon never heard": {StepFailed, UpgradeFacts{HasPrevious: true, IsSwitched: true,
			ResponseFacts: ResponseFacts{IsDownUnreported: true}}, v1alpha1.StepRollingBack, ActionRollBackOnly, ""},
		"a failure with nowhere to go back to": {StepFailed, UpgradeFacts{IsSwitched: true}, StepFailed, ActionWait, ""},
		"not back in time": {v1alpha1.StepRollingBack, UpgradeFacts{IsRequested: true, StepSince: long,
			VerifyTimeout: time.Minute, Lacks: contract.ReasonUpdateFailed}, v1alpha1.StepRollingBack, ActionWait,
			contract.ReasonRollbackTimedOut},
	}
}

// The cases must cover every row, so that a case fails if a row is deleted, or if an earlier row always applies
// instead.
func TestTheNextStepOfAnUpgrade(t *testing.T) {
	t.Parallel()
	cases := map[string]nextStep{"an unknown step": {"Flying", UpgradeFacts{}, v1alpha1.StepWaiting, ActionWait, ""}}
	maps.Copy(cases, nextStepsBeforeTheSwitch())
	maps.Copy(cases, nextStepsFromTheSwitchOn())
	isReached := map[string]bool{}
	for name, test := range cases {
		row := NextUpgrade(test.step, test.facts, now())
		if row.Next != test.next || row.Action != test.action || row.Reason != test.reason {
			t.Errorf("%s: next %q, action %q, reason %q (%s)", name, row.Next, row.Action, row.Reason, row.When)
		}
		isReached[string(row.Step)+": "+row.When] = true
	}
	for _, row := range UpgradeRows() {
		if name := string(row.Step) + ": " + row.When; !isReached[name] {
			t.Errorf("no case reaches the row %s", name)
		}
	}
}
