package settings_test

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/settings"
	"github.com/windows-nodes/wmco/internal/policy"
)

// joined returns a host that is a node at a revision. Each of the words sets one property.
func joined(name string, words ...string) v1alpha1.WindowsInstance {
	i := host(name, "ready")
	now := metav1.NewTime(time.Unix(1000, 0))
	i.Status.NodeName, i.Status.HeldRevision = name, "1"
	i.Status.Revision, i.Status.DesiredRevision = "2", "2"
	for _, word := range words {
		switch word {
		case "staging":
			i.Status.Revision, i.Status.DesiredRevision, i.Status.Activity = "1", "1",
				&v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "2", Step: v1alpha1.StepStaging}
		case "waiting":
			i.Status.Revision, i.Status.DesiredRevision, i.Status.Activity = "1", "1",
				&v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "2", Step: v1alpha1.StepWaiting}
		case "blocked":
			i.Status.Revision, i.Status.DesiredRevision, i.Status.Activity = "1", "1",
				&v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "2", Reason: "DrainBlocked", Message: "pods are left",
					Step: v1alpha1.StepWaiting, NextTime: new(metav1.NewTime(time.Unix(7200, 0)))}
		case "paused":
			i.Status.Revision, i.Status.DesiredRevision, i.Spec.Paused = "1", "1", true
		case "switching":
			i.Status.Revision, i.Status.Activity = "1",
				&v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "2", Step: v1alpha1.StepSwitching}
			i.Status.Slot = &v1alpha1.Slot{Since: new(metav1.NewTime(time.Unix(1, 0)))}
		case "over SSH": // the operator connects first, and then requests a slot
			i.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "2",
				Step: v1alpha1.StepSwitching}
			i.Status.Revision, i.Status.DesiredRevision = "1", "1"
		case "failed":
			i.Status.FailedRevision = "2"
			i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionUpdateFailed,
				Reason: string(contract.ReasonUpdateFailed), Message: "kubelet is not well", LastTransitionTime: now})
		case "new":
			i.Status.HeldRevision = ""
		case "leaving":
			i.DeletionTimestamp = &now
		case "down":
			meta.SetStatusCondition(&i.Status.Conditions,
				metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "R"})
		}
	}
	return i
}

func TestHowFarARolloutIs(t *testing.T) {
	t.Parallel()
	night := []v1alpha1.MaintenanceWindow{{Start: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	for name, test := range map[string]struct {
		hosts  []v1alpha1.WindowsInstance
		config v1alpha1.WindowsMachineConfig
		phase  v1alpha1.RolloutPhase
		// counts are the numbers of all, updated, staged and unavailable nodes.
		counts   [4]int32
		failures int
		says     string
	}{
		"no host has joined": {phase: v1alpha1.RolloutIdle, says: "0 nodes are at the revision"},
		"all are there": {hosts: []v1alpha1.WindowsInstance{joined("a"), joined("b", "down")},
			phase: v1alpha1.RolloutIdle, counts: [4]int32{2, 2, 2, 1}, says: "2 nodes are at the revision"},
		"one is on its way and one waits": {hosts: []v1alpha1.WindowsInstance{joined("a"), joined("b", "switching"),
			joined("c", "waiting")},
			phase: v1alpha1.RolloutProgressing, counts: [4]int32{3, 1, 3, 1},
			says: "1 of 3 nodes are at the revision, 1 being upgraded, 1 waiting"},
		"one is reached over SSH": {hosts: []v1alpha1.WindowsInstance{joined("a", "over SSH"), joined("b", "waiting")},
			phase: v1alpha1.RolloutProgressing, counts: [4]int32{2, 0, 2, 0},
			says: "0 of 2 nodes are at the revision, 1 being upgraded, 1 waiting"},
		"one is paused": {hosts: []v1alpha1.WindowsInstance{joined("a"), joined("b", "paused")},
			phase: v1alpha1.RolloutWaiting, counts: [4]int32{2, 1, 1, 0},
			says: "1 of 2 nodes are at the revision; no other node waits, 1 paused"},
		"one is paused, and one is upgraded": {hosts: []v1alpha1.WindowsInstance{joined("a", "switching"),
			joined("b", "paused")}, phase: v1alpha1.RolloutProgressing, counts: [4]int32{2, 0, 1, 1},
			says: "0 of 2 nodes are at the revision, 1 being upgraded, 0 waiting, 1 paused"},
		"one is tried again later": {hosts: []v1alpha1.WindowsInstance{joined("a"), joined("b", "blocked")},
			phase: v1alpha1.RolloutWaiting, counts: [4]int32{2, 1, 2, 0},
			says: "node b is tried again at 1970-01-01T02:00:00Z, because of W802 DrainBlocked: pods are left"},
		"one is tried again later, and one waits": {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting"),
			joined("b", "blocked")}, phase: v1alpha1.RolloutWaiting, counts: [4]int32{2, 0, 2, 0},
			says: "the others wait for the rollout budget"},
		"one is staged": {hosts: []v1alpha1.WindowsInstance{joined("a", "staging"), joined("b", "leaving")},
			phase: v1alpha1.RolloutProgressing, counts: [4]int32{1, 0, 0, 0}, says: "0 of 1"},
		"the budget is zero": {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting")},
			config: config(
				func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)) }),
			phase: v1alpha1.RolloutWaiting, counts: [4]int32{1, 0, 1, 0}, says: "maxUnavailable is 0"},
		"the budget is nonsense": {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting")},
			config: config(
				func(
					c *v1alpha1.WindowsMachineConfig) {
					c.Spec.Rollout.MaxUnavailable = new(intstr.FromString("many"))
				}),
			phase: v1alpha1.RolloutWaiting, counts: [4]int32{1, 0, 1, 0}, says: "neither a number nor a percentage"},
		"it is not the time": {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting")},
			config: config(func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaintenanceWindows = night }),
			phase:  v1alpha1.RolloutWaiting, counts: [4]int32{1, 0, 1, 0},
			says: "the next one opens at 1970-01-01T22:00:00Z"},
		"a node failed": {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting", "failed"), joined("b", "waiting")},
			phase: v1alpha1.RolloutHalted, counts: [4]int32{2, 0, 2, 0}, failures: 1,
			says: "1 node failed at revision 2 (a)"},
		"a node failed and may": {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting", "failed"),
			joined(
				"b", "switching")}, config: config(
			func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.FailureThreshold = 2 }),
			phase: v1alpha1.RolloutProgressing, counts: [4]int32{2, 0, 2, 1}, failures: 1},
		"the user continues the rollout": {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting", "failed")},
			config: config(func(c *v1alpha1.WindowsMachineConfig) {
				c.Annotations = map[string]string{contract.ResumeRolloutAnnotation: "2"}
			}), phase: v1alpha1.RolloutWaiting, counts: [4]int32{1, 0, 1, 0}, failures: 1},
		"the node that failed is gone": {hosts: []v1alpha1.WindowsInstance{joined("b", "waiting")},
			config: config(func(c *v1alpha1.WindowsMachineConfig) {
				c.Status.Rollout.Failures = []v1alpha1.RolloutFailure{{Node: "gone", Revision: "2"},
					{Node: "gone", Revision: "1"}}
			}), phase: v1alpha1.RolloutHalted, counts: [4]int32{1, 0, 1, 0}, failures: 1, says: "(gone)"},
		"a node failed, and is at the revision now": {hosts: []v1alpha1.WindowsInstance{joined("a"),
			joined("b", "waiting")},
			config: failedBefore("a"), phase: v1alpha1.RolloutWaiting, counts: [4]int32{2, 1, 2, 0}},
		"a node failed, and its host has not joined again yet": {hosts: []v1alpha1.WindowsInstance{
			joined("a", "new"), joined("b", "waiting")},
			config: failedBefore("a"), phase: v1alpha1.RolloutHalted, counts: [4]int32{1, 0, 1, 0}, failures: 1,
			says: "(a)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := test.config.Status
			settings.Assess(&status, settings.Facts{DesiredRevision: "2", Instances: test.hosts, Config: &test.config,
				Now: time.Unix(3600, 0)})
			r := status.Rollout
			if r.Phase != test.phase || [4]int32{r.Total, r.Updated, r.Staged, r.Unavailable} != test.counts ||
				len(r.Failures) != test.failures || !strings.Contains(r.Message, test.says) || r.Revision != "2" {
				t.Errorf("rollout %+v", r)
			}
			if halted := meta.IsStatusConditionTrue(status.Conditions,
				v1alpha1.ConditionDegraded); halted != (test.phase == v1alpha1.RolloutHalted) {
				t.Errorf("conditions %+v", status.Conditions)
			}
		})
	}
}

func TestA83_ARolloutThatWaitsNamesWhatUsesTheBudget(t *testing.T) {
	t.Parallel()
	waits := joined("a", "waiting")
	says(&waits, contract.ReasonBudgetExhausted, "node a waits for the rollout budget: no more nodes may be unavailable, "+
		"as maxUnavailable is 1 (MachineSet s: 1 of 2 have no node)")
	var status v1alpha1.WindowsMachineConfigStatus
	settings.Assess(&status, settings.Facts{DesiredRevision: "2", Instances: []v1alpha1.WindowsInstance{waits},
		Config: &v1alpha1.WindowsMachineConfig{}, Now: time.Unix(3600, 0)})
	if message := status.Rollout.Message; !strings.Contains(message, "MachineSet s: 1 of 2") ||
		strings.Contains(message, "0 nodes are unavailable") || strings.Contains(message, "W821") {
		t.Error(message)
	}
}

// says sets the condition that says why a host waits or fails, as the operator writes it.
func says(i *v1alpha1.WindowsInstance, reason contract.Reason, message string) {
	meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing,
		Status: metav1.ConditionTrue, Reason: string(reason), Message: contract.NewProblem(reason, "%s", message).Explain()})
}

// failedBefore returns settings whose status records a node that failed at the desired revision.
func failedBefore(node string) v1alpha1.WindowsMachineConfig {
	return config(func(c *v1alpha1.WindowsMachineConfig) {
		c.Status.Rollout.Failures = []v1alpha1.RolloutFailure{{Node: node, Revision: "2"}}
	})
}

func config(edit func(*v1alpha1.WindowsMachineConfig)) v1alpha1.WindowsMachineConfig {
	c := v1alpha1.WindowsMachineConfig{}
	edit(&c)
	return c
}

func TestBoundsThatAreNotUnderstoodAreRejected(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spec     v1alpha1.RolloutSpec
		problems int
	}{
		"the defaults":       {v1alpha1.RolloutSpec{}, 0},
		"everything":         {v1alpha1.RolloutSpec{MaxUnavailable: new(intstr.FromString("100%"))}, 0},
		"nothing":            {v1alpha1.RolloutSpec{MaxUnavailable: new(intstr.FromString("0%"))}, 0},
		"more than there is": {v1alpha1.RolloutSpec{MaxUnavailable: new(intstr.FromString("150%"))}, 1},
		"less than nothing":  {v1alpha1.RolloutSpec{MaxUnavailable: new(intstr.FromInt32(-1))}, 1},
		"a word":             {v1alpha1.RolloutSpec{MaxUnavailable: new(intstr.FromString("half"))}, 1},
		"a window that is not": {v1alpha1.RolloutSpec{MaintenanceWindows: []v1alpha1.MaintenanceWindow{{Start: "* * *",
			Duration: metav1.Duration{Duration: time.Hour}}}}, 1},
		"a window whose date never comes": {v1alpha1.RolloutSpec{MaintenanceWindows: []v1alpha1.MaintenanceWindow{
			{Start: "0 22 30 2 *", Duration: metav1.Duration{Duration: time.Hour}}}}, 1},
		"a window without an end": {
			v1alpha1.RolloutSpec{MaintenanceWindows: []v1alpha1.MaintenanceWindow{{Start: "0 1 * * *"},
				{Start: "0 1 * * *", Duration: metav1.Duration{Duration: time.Hour}}}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := policy.CheckRollout(test.spec)
			if len(problems) != test.problems {
				t.Fatalf("problems %v", problems)
			}
			status := v1alpha1.WindowsMachineConfigStatus{}
			settings.Assess(&status, settings.Facts{Known: true, Refused: problems})
			if accepted := meta.IsStatusConditionTrue(status.Conditions,
				v1alpha1.ConditionAccepted); accepted != (test.problems == 0) {
				t.Errorf("conditions %+v", status.Conditions)
			}
			if test.problems > 0 && policy.Closed(test.spec, time.Unix(0, 0)) == "" {
				fleet := policy.Fleet{Members: []policy.Member{{Node: "a", Ready: true}, {Node: "b", Ready: true}}}
				if policy.MayDisrupt("a", fleet, test.spec.MaxUnavailable, "").Allowed {
					t.Error("a node in service may be disrupted")
				}
			}
		})
	}
}

func TestNobodyIsKeptFromTheReleaseThatCuresWhatIsStuck(t *testing.T) {
	t.Parallel()
	retried := joined("e", "staging")
	retried.Status.Activity.Tries = 1
	turn := joined("d", "waiting")
	turn.Status.Slot = &v1alpha1.Slot{Since: new(metav1.NewTime(time.Unix(1, 0)))}
	silent := joined("h")
	says(&silent, contract.ReasonDaemonUnresponsive, "")
	removed := joined("i", "leaving")
	says(&removed, contract.ReasonRemovalPending, "")
	for name, test := range map[string]struct {
		hosts []v1alpha1.WindowsInstance
		names string
	}{
		"nothing to do":                         {hosts: []v1alpha1.WindowsInstance{joined("a")}},
		"one waits for its turn":                {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting")}},
		"one host waits for a host that is off": {hosts: []v1alpha1.WindowsInstance{joined("f", "down"), joined("a", "waiting")}},
		"one host must be joined again":         {hosts: []v1alpha1.WindowsInstance{silent}},
		"one waits for its removal":             {hosts: []v1alpha1.WindowsInstance{removed}},
		"one is in its turn":                    {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting"), turn}, names: ": d"},
		"one fetches its payload":               {hosts: []v1alpha1.WindowsInstance{joined("a", "staging")}, names: ": a"},
		"one is changed without a slot":         {hosts: []v1alpha1.WindowsInstance{joined("a", "over SSH")}, names: ": a"},
		"one leaves":                            {hosts: []v1alpha1.WindowsInstance{removed, joined("b", "leaving")}, names: ": b"},
		"a try that failed is repeated":         {hosts: []v1alpha1.WindowsInstance{retried}},
		"one failed, and one is in its turn":    {hosts: []v1alpha1.WindowsInstance{joined("a", "waiting", "failed"), turn}, names: ": d"},
		"a node is down, with nothing to do":    {hosts: []v1alpha1.WindowsInstance{joined("f", "down")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var status v1alpha1.WindowsMachineConfigStatus
			settings.Assess(&status, settings.Facts{DesiredRevision: "2", Instances: test.hosts,
				Config: &v1alpha1.WindowsMachineConfig{}, Now: time.Unix(3600, 0)})
			upgradeable := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUpgradeable)
			if (upgradeable.Status == metav1.ConditionTrue) != (test.names == "") ||
				!strings.HasSuffix(upgradeable.Message, test.names) {
				t.Errorf("Upgradeable is %+v", upgradeable)
			}
		})
	}
}
