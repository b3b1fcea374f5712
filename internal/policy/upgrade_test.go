package policy

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Whatever is the case at a step, a row says what comes next; so each step ends with one that always
// holds.
func TestEveryStepOfAnUpgradeEndsWithARowThatHolds(t *testing.T) {
	t.Parallel()
	last := map[v1alpha1.Step]UpgradeRow{}
	for _, row := range UpgradeRows() {
		last[row.Step] = row
	}
	for _, step := range []v1alpha1.Step{v1alpha1.StepStaging, v1alpha1.StepWaiting, v1alpha1.StepDraining,
		v1alpha1.StepSwitching, v1alpha1.StepVerifying, v1alpha1.StepRollingBack, StepFailed} {
		if row, ok := last[step]; !ok || row.When != "otherwise" || !row.holds(UpgradeFacts{}, time.Time{}) {
			t.Errorf("%s ends with %+v", step, row)
		}
	}
}

func TestTheNextStepOfAnUpgrade(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	since := func(ago time.Duration) Since { return Since{Began: now.Add(-ago), Seen: now.Add(-ago)} }
	long := since(time.Hour)
	staged := StagingFacts{CanStage: true, IsStageRequested: true, IsStaged: true}
	for name, test := range map[string]struct {
		step   v1alpha1.Step
		facts  UpgradeFacts
		next   v1alpha1.Step
		action UpgradeAction
		reason contract.Reason
	}{
		"staged":                    {v1alpha1.StepStaging, UpgradeFacts{StagingFacts: staged}, v1alpha1.StepWaiting, ActionWait, ""},
		"a daemon that can't stage": {v1alpha1.StepStaging, UpgradeFacts{}, v1alpha1.StepWaiting, ActionUseSSH, ""},
		"without a place": {v1alpha1.StepWaiting, UpgradeFacts{OverSSH: true, Drains: true}, v1alpha1.StepWaiting,
			ActionTakePlace, contract.ReasonBudgetExhausted},
		"with a place": {v1alpha1.StepWaiting, UpgradeFacts{HasPlace: true, Drains: true}, v1alpha1.StepDraining,
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
		"too late by the cache": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true, SwitchSince: long,
			VerifyTimeout: time.Minute}, v1alpha1.StepSwitching, ActionReadNode, ""},
		"refused by the cache": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true, Refused: true},
			v1alpha1.StepSwitching, ActionReadNode, ""},
		"never Ready by the cache": {v1alpha1.StepVerifying, UpgradeFacts{Lacks: contract.ReasonNodeNotReady,
			SwitchSince: long, VerifyTimeout: time.Minute}, v1alpha1.StepVerifying, ActionReadNode, ""},
		"too late": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true, IsLive: true, SwitchSince: long,
			VerifyTimeout: time.Minute},
			StepFailed, ActionFail, contract.ReasonUpdateFailed},
		"too late, of a daemon that may have been dead before": {v1alpha1.StepSwitching, UpgradeFacts{IsRequested: true,
			IsLive: true, SwitchSince: since(90 * time.Second), VerifyTimeout: time.Minute,
			ResponseFacts: ResponseFacts{IsUnresponsive: true}}, v1alpha1.StepSwitching, ActionJoin, ""},
		"much too late, of a daemon that may have been dead before": {v1alpha1.StepSwitching,
			UpgradeFacts{IsRequested: true, IsLive: true, SwitchSince: since(2 * time.Minute),
				VerifyTimeout: time.Minute, ResponseFacts: ResponseFacts{IsUnresponsive: true}}, StepFailed, ActionFail,
			contract.ReasonUpdateFailed},
		"a failure before the switch": {StepFailed, UpgradeFacts{HasPrevious: true}, v1alpha1.StepWaiting,
			ActionReturn, ""},
		"a failure after the switch": {StepFailed, UpgradeFacts{HasPrevious: true, IsSwitched: true},
			v1alpha1.StepRollingBack, ActionRollBack, ""},
		"a failure of which the daemon never heard": {StepFailed, UpgradeFacts{HasPrevious: true, IsSwitched: true,
			ResponseFacts: ResponseFacts{IsDownUnreported: true}}, v1alpha1.StepRollingBack, ActionRollBackOnly, ""},
		"a failure with nowhere to go back to": {StepFailed, UpgradeFacts{IsSwitched: true}, "", ActionWait, ""},
		"not back in time": {v1alpha1.StepRollingBack, UpgradeFacts{IsRequested: true, StepSince: long,
			VerifyTimeout: time.Minute, Lacks: contract.ReasonUpdateFailed}, v1alpha1.StepRollingBack, ActionWait,
			contract.ReasonRollbackTimedOut},
		"an unknown step": {"Flying", UpgradeFacts{}, v1alpha1.StepWaiting, ActionWait, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := NextUpgrade(test.step, test.facts, now)
			if row.Next != test.next || row.Action != test.action || row.Reason != test.reason {
				t.Errorf("next %q, action %q, reason %q (%s)", row.Next, row.Action, row.Reason, row.When)
			}
		})
	}
}
