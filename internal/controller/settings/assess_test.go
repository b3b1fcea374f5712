package settings_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/settings"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/payload"
)

// host returns an instance. Each of the words sets one property.
func host(name string, words ...string) v1alpha1.WindowsInstance {
	i := v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, word := range words {
		switch word {
		case "ready":
			i.Status.HeldRevision = "1"
			meta.SetStatusCondition(&i.Status.Conditions,
				metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "R"})
		case "changing":
			i.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Step: v1alpha1.StepStaging}
		case "failing":
			i.Status.Failures = 3
		case "paused":
			i.Spec.Paused = true
		case "joined":
			i.Status.HeldRevision = "1"
		case "leaving":
			now := metav1.Now()
			i.DeletionTimestamp = &now
		}
	}
	return i
}

func TestTheWholeIsAsItsPartsAre(t *testing.T) {
	t.Parallel()
	problem := contract.NewProblem(contract.ReasonPrivateKeyMissing, "no key")
	other := contract.NewProblem(contract.ReasonNetworkUnsupported, "no overlay")
	for name, test := range map[string]struct {
		facts settings.Facts
		count v1alpha1.InstanceCounts
		// conditions are the conditions Available, Upgradeable and Degraded, each as "Status Reason".
		conditions [3]string
		says       string // a text in the messages
	}{
		"nothing is there": {settings.Facts{}, v1alpha1.InstanceCounts{},
			[3]string{"True AsExpected", "True upgradeIsSafe", "False AsExpected"}, "no host fails"},
		"all is well": {settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "ready"), host("b", "ready")}},
			v1alpha1.InstanceCounts{Total: 2, Ready: 2},
			[3]string{"True AsExpected", "True upgradeIsSafe", "False AsExpected"}, "no host is joining"},
		"a host is new": {settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "ready"), host("b")}},
			v1alpha1.InstanceCounts{Total: 2, Ready: 1, Joining: 1},
			[3]string{"True AsExpected", "False upgradeIsNotSafe", "False AsExpected"},
			"1 host is joining, leaving or being upgraded: b"},
		"a host joins": {settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "changing")}},
			v1alpha1.InstanceCounts{Total: 1, Joining: 1},
			[3]string{"True AsExpected", "False upgradeIsNotSafe", "False AsExpected"}, "a"},
		"a host fails": {settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "failing", "changing")}},
			v1alpha1.InstanceCounts{Total: 1, Failing: 1},
			[3]string{"True AsExpected", "True upgradeIsSafe", "True HostsFailing"}, "1 host is failing: a"},
		"a node waits for its update": {settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "ready",
			"changing")}},
			v1alpha1.InstanceCounts{Total: 1, Ready: 1},
			[3]string{"True AsExpected", "False upgradeIsNotSafe", "False AsExpected"}, "being upgraded: a"},
		"a node serves while its update fails": {settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "ready",
			"changing", "failing")}},
			v1alpha1.InstanceCounts{Total: 1, Ready: 1, Failing: 1},
			[3]string{"True AsExpected", "True upgradeIsSafe", "True HostsFailing"}, "1 host is failing: a"},
		"a host leaves": {settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "leaving", "ready")}},
			v1alpha1.InstanceCounts{Total: 1, Leaving: 1},
			[3]string{"True AsExpected", "False upgradeIsNotSafe", "False AsExpected"}, "a"},
		"a host can't leave": {settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "leaving", "failing")}},
			v1alpha1.InstanceCounts{Total: 1, Leaving: 1, Failing: 1},
			[3]string{"True AsExpected", "True upgradeIsSafe", "True HostsFailing"}, "a"},
		"prerequisites are missing": {settings.Facts{Lacks: []*contract.Problem{problem, other}},
			v1alpha1.InstanceCounts{}, [3]string{"False PrivateKeyMissing", "False upgradeIsNotSafe",
				"False AsExpected"}, "no overlay"},
		"nothing can be published, which the next release may mend": {
			settings.Facts{Lacks: []*contract.Problem{contract.NewProblem(contract.ReasonRevisionNotPublished,
				"exceeded quota")}},
			v1alpha1.InstanceCounts{}, [3]string{"False RevisionNotPublished", "True upgradeIsSafe",
				"False AsExpected"}, "exceeded quota"},
		"an entry is not understood": {settings.Facts{Rejected: []inventory.Rejected{{Key: "x", Problem: problem}}},
			v1alpha1.InstanceCounts{}, [3]string{"True AsExpected", "True upgradeIsSafe", "True EntriesRejected"},
			"1 entry is not valid in windows-instances"},
		"user data can't be written": {
			settings.Facts{Troubles: []*contract.Problem{contract.NewProblem(contract.ReasonUserDataForeign,
				"secret x is managed by y")}},
			v1alpha1.InstanceCounts{}, [3]string{"True AsExpected", "True upgradeIsSafe", "True UserDataForeign"},
			"secret x is managed by y (W917 UserDataForeign). Delete the secret"},
		"a host fails and an entry is not understood": {
			settings.Facts{Instances: []v1alpha1.WindowsInstance{host("a", "failing")},
				Rejected: []inventory.Rejected{{Key: "x", Problem: problem}}},
			v1alpha1.InstanceCounts{Total: 1, Failing: 1},
			[3]string{"True AsExpected", "True upgradeIsSafe", "True HostsFailing"}, "; 1 entry"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := &v1alpha1.WindowsMachineConfigStatus{}
			test.facts.DesiredRevision, test.facts.Generation = "1-x", 7
			settings.Assess(status, test.facts)
			if diff := cmp.Diff(test.count, status.Instances); diff != "" {
				t.Error(diff)
			}
			said := ""
			for n, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionUpgradeable,
				v1alpha1.ConditionDegraded} {
				c := meta.FindStatusCondition(status.Conditions, kind)
				if c == nil || string(c.Status)+" "+c.Reason != test.conditions[n] || c.ObservedGeneration != 7 ||
					c.Message == "" {
					t.Errorf("%s is %+v, want %s", kind, c, test.conditions[n])
					continue
				}
				said += c.Message + "\n"
			}
			if !strings.Contains(said, test.says) {
				t.Errorf("no message has %q:\n%s", test.says, said)
			}
			if status.DesiredRevision != "1-x" || status.ObservedGeneration != 7 {
				t.Errorf("status %+v", status)
			}
		})
	}
}

func TestMessagesStayShortForAWholeFleet(t *testing.T) {
	t.Parallel()
	facts := settings.Facts{}
	for n := range 500 {
		name := fmt.Sprintf("host-%03d", n)
		facts.Instances = append(facts.Instances, host(name, "failing"))
		facts.Rejected = append(facts.Rejected,
			inventory.Rejected{Key: name, Problem: contract.NewProblem(contract.ReasonEntryMalformed, "no")})
	}
	status := &v1alpha1.WindowsMachineConfigStatus{}
	settings.Assess(status, facts)
	if len(status.RejectedEntries) != 20 || status.RejectedEntries[0].Code != "W101" {
		t.Errorf("%d entries are listed; the first is %+v", len(status.RejectedEntries), status.RejectedEntries[0])
	}
	for _, c := range status.Conditions {
		if len(c.Message) > 500 {
			t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
		}
	}
	facts = settings.Facts{}
	if settings.Assess(status, facts); len(status.RejectedEntries) != 0 {
		t.Error("corrected entries are still listed")
	}
}

// If a message is too long, the API server refuses the whole status. Then users would not see any reason.
func TestMessagesOfConditionsStayWithinWhatTheAPIServerTakes(t *testing.T) {
	t.Parallel()
	long := contract.NewProblem(contract.ReasonClusterFactsIncomplete, "%s", strings.Repeat("é", 20<<10))
	status := &v1alpha1.WindowsMachineConfigStatus{}
	settings.Assess(status, settings.Facts{Lacks: []*contract.Problem{long}, Troubles: []*contract.Problem{long}})
	for _, c := range status.Conditions {
		if len(c.Message) > 32768 || !utf8.ValidString(c.Message) {
			t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
		}
	}
}

// Hosts that are being updated block the next upgrade of the operator. A stuck host does not block it, because the next
// release may fix the host's problem.
func TestUpgradeableCountsWhatIsOnItsWayAndNotWhatIsStuck(t *testing.T) {
	t.Parallel()
	unsupported := contract.NewProblem(contract.ReasonVersionUnsupported, "the API server is 1.40")
	noKey := contract.NewProblem(contract.ReasonPrivateKeyMissing, "no key")
	now := time.Unix(1_800_000_000, 0)
	made := func(name string, ago time.Duration) v1alpha1.WindowsInstance {
		i := host(name, "failing", "changing")
		i.Spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: name}
		i.CreationTimestamp = metav1.NewTime(now.Add(-ago))
		return i
	}
	for name, c := range map[string]struct {
		host  v1alpha1.WindowsInstance
		lacks []*contract.Problem
		safe  bool
	}{
		"a host that is off":        {host: host("a", "joined"), safe: true},
		"a host that fails to join": {host: host("a", "failing", "changing"), safe: true},
		"a host whose update fails": {host: host("a", "joined", "ready", "changing", "failing"),
			safe: true},
		"a host that can't leave":               {host: host("a", "leaving", "failing", "changing"), safe: true},
		"a host paused before its join":         {host: host("a", "paused"), safe: true},
		"a host paused while it is progressing": {host: host("a", "paused", "joined", "changing")},
		"a Machine that boots":                  {host: made("a", time.Minute)},
		"a Machine that never booted":           {host: made("a", time.Hour), safe: true},
		"a new host":                            {host: host("a")},
		"a host that joins":                     {host: host("a", "changing")},
		"a host that is updated":                {host: host("a", "joined", "ready", "changing")},
		"a host that leaves":                    {host: host("a", "joined", "ready", "leaving")},
		"a cluster that another release supports": {
			host:  host("a", "joined", "ready"),
			lacks: []*contract.Problem{unsupported}, safe: true},
		"a host that waits for the other release": {
			host:  host("a", "changing"),
			lacks: []*contract.Problem{unsupported}, safe: true},
		"a host that waits for what can't be published": {
			host:  host("a", "changing"),
			lacks: []*contract.Problem{contract.NewProblem(contract.ReasonRevisionNotPublished, "no right")},
			safe:  true},
		"a missing key, which an upgrade does not fix": {
			host:  host("a", "joined", "ready"),
			lacks: []*contract.Problem{noKey}},
		"a missing key and an unsupported cluster": {
			host:  host("a", "joined", "ready"),
			lacks: []*contract.Problem{noKey, unsupported}, safe: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := &v1alpha1.WindowsMachineConfigStatus{}
			settings.Assess(status, settings.Facts{Instances: []v1alpha1.WindowsInstance{c.host}, Lacks: c.lacks,
				Now: now})
			if got := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionUpgradeable); got != c.safe {
				t.Errorf("Upgradeable is %v: %+v", got, meta.FindStatusCondition(status.Conditions,
					v1alpha1.ConditionUpgradeable))
			}
		})
	}
}

func TestWhatThePayloadLacksIsACondition(t *testing.T) {
	t.Parallel()
	status := &v1alpha1.WindowsMachineConfigStatus{}
	settings.Assess(status, settings.Facts{IsMissingKnown: true, Missing: []payload.Missing{
		{Name: "csi-proxy.exe", Feature: "CSI storage"},
		{Name: "hybrid-overlay-node.exe", Feature: "pod network"}}})
	c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPayloadComplete)
	want := "off: CSI storage (csi-proxy.exe is missing), pod network (hybrid-overlay-node.exe is missing)"
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "FeaturesOff" || c.Message != want {
		t.Errorf("condition %+v", c)
	}
	settings.Assess(status, settings.Facts{IsMissingKnown: true})
	if !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionPayloadComplete) {
		t.Errorf("conditions %+v", status.Conditions)
	}
}
