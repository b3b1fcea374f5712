package policy_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// asks returns an instance that requests a slot. By default, it requests the slot for an update.
func asks(name string, edits ...func(*v1alpha1.WindowsInstance)) v1alpha1.WindowsInstance {
	return onNode(name, name, append([]func(*v1alpha1.WindowsInstance){func(i *v1alpha1.WindowsInstance) {
		i.Status.Slot = &v1alpha1.Slot{}
		i.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "next"}
	}}, edits...)...)
}

// state returns a cluster with one Ready node for each instance, and a budget of one.
func state(instances ...v1alpha1.WindowsInstance) policy.RolloutState {
	s := policy.RolloutState{Instances: instances, Config: &v1alpha1.WindowsMachineConfig{}, Now: noon}
	for _, i := range instances {
		s.Nodes = append(s.Nodes, readyNode(i.Status.NodeName))
	}
	return s
}

// holders returns the names of the slots' holders.
func holders(slots []policy.Slot) (names []string) {
	for _, p := range slots {
		names = append(names, p.Name)
	}
	return names
}

func TestPlacesGoToRequestsInTheirOrder(t *testing.T) {
	t.Parallel()
	created := func(hour int) func(*v1alpha1.WindowsInstance) {
		return func(i *v1alpha1.WindowsInstance) {
			i.CreationTimestamp = metav1.NewTime(noon.Add(time.Duration(hour) * time.Hour))
		}
	}
	failed := func(edit func(*v1alpha1.WindowsInstanceStatus)) func(*v1alpha1.WindowsInstance) {
		return func(i *v1alpha1.WindowsInstance) { edit(&i.Status) }
	}
	for name, test := range map[string]struct {
		instances []v1alpha1.WindowsInstance
		down      string
		had       string
		want      string
	}{
		"the oldest":          {[]v1alpha1.WindowsInstance{asks("a", created(-1)), asks("b", created(-2))}, "", "", "b"},
		"then by name":        {[]v1alpha1.WindowsInstance{asks("b"), asks("a")}, "", "", "a"},
		"a node that is down": {[]v1alpha1.WindowsInstance{asks("a", created(-2)), asks("b", created(-1))}, "b", "", "b"},
		"before those that failed to join": {[]v1alpha1.WindowsInstance{asks("a", created(-2),
			failed(func(s *v1alpha1.WindowsInstanceStatus) { s.Failures = 1 })), asks("b")}, "", "", "b"},
		"or at a revision": {[]v1alpha1.WindowsInstance{asks("a", created(-2),
			failed(func(s *v1alpha1.WindowsInstanceStatus) {
				s.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Tries: 1}
			})), asks("b")}, "", "", "b"},
		"or at a reboot": {[]v1alpha1.WindowsInstance{asks("a", created(-2),
			failed(func(s *v1alpha1.WindowsInstanceStatus) {
				s.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityReboot, Tries: 1}
			})), asks("b")}, "", "", "b"},
		"a host that had the slot before": {[]v1alpha1.WindowsInstance{asks("a", created(-2)), asks("b")}, "", "b", "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := state(test.instances...)
			for i := range s.Nodes {
				if s.Nodes[i].Name == test.down {
					notReady(&s.Nodes[i])
				}
			}
			var had []policy.Slot
			if test.had != "" {
				had = []policy.Slot{{Name: test.had, Node: test.had, Since: metav1.NewTime(noon.Add(-time.Minute))}}
			}
			d := policy.DecideSlots(had, s)
			if got := holders(d.Slots); !slices.Equal(got, []string{test.want}) {
				t.Errorf("%v have slots", got)
			}
			for _, i := range test.instances {
				if verdict := d.Verdicts[i.Name]; verdict.Allowed != (i.Name == test.want) || verdict.Why == "" {
					t.Errorf("%s: %+v", i.Name, verdict)
				}
			}
		})
	}
}

func TestAPlaceLastsAsLongAsItsRequest(t *testing.T) {
	t.Parallel()
	had := func(edit func(*policy.Slot)) []policy.Slot {
		slot := policy.Slot{Name: "a", Node: "a", Since: metav1.NewTime(noon.Add(-time.Hour))}
		edit(&slot)
		return []policy.Slot{slot}
	}
	used := func(i *v1alpha1.WindowsInstance) { i.Status.Slot.Since = new(metav1.NewTime(noon)) }
	as := func(*policy.Slot) {}
	down := func(s *policy.RolloutState) { notReady(&s.Nodes[1]) }
	for name, test := range map[string]struct {
		had   []policy.Slot
		a     v1alpha1.WindowsInstance
		edit  func(*policy.RolloutState)
		stays bool
	}{
		"as it is":                        {had(as), asks("a"), nil, true},
		"its instance is gone":            {had(as), onNode("other", "a"), nil, false},
		"its instance withdrew it":        {had(as), onNode("a", "a"), nil, false},
		"another node went down":          {had(as), asks("a"), down, false},
		"… and it is used":                {had(as), asks("a", used), down, true},
		"… and is about to be":            {had(func(p *policy.Slot) { p.IsUsed = true }), asks("a"), down, true},
		"… and asks again":                {had(func(p *policy.Slot) { p.IsUsed = true }), asks("a"), func(s *policy.RolloutState) { down(s); s.Uses = "a" }, false},
		"only the status says that it is": {nil, asks("a", used), down, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := state(test.a, onNode("b", "b"))
			if test.edit != nil {
				test.edit(&s)
			}
			d := policy.DecideSlots(test.had, s)
			if got := slices.Contains(holders(d.Slots), "a"); got != test.stays {
				t.Errorf("the slot stays: %t, %+v", got, d.Verdicts["a"])
			}
		})
	}
}

// If an instance still has the slot of an earlier request, the slot must be written again before it is used. Only a
// conflict of this write shows that another operator has decided in the meantime.
func TestAPlaceThatAnEarlierRequestLeftIsWrittenAnewBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	s := state(asks("a"), onNode("b", "b"))
	s.Uses = "a"
	d := policy.DecideSlots([]policy.Slot{{Name: "a", Node: "a", IsUsed: true,
		Since: metav1.NewTime(noon.Add(-time.Hour))}}, s)
	if len(d.Slots) != 1 || !d.Slots[0].Since.Time.Equal(noon) {
		t.Errorf("%+v", d.Slots)
	}
}

func TestWhatHoldsARequestBesideTheBudget(t *testing.T) {
	t.Parallel()
	closed := func(s *policy.RolloutState) {
		s.Config.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * 6",
			Duration: metav1.Duration{Duration: time.Hour}}}
	}
	removal := func(i *v1alpha1.WindowsInstance) { i.DeletionTimestamp = new(metav1.NewTime(noon)) }
	deletedAt := func(i *v1alpha1.WindowsInstance) {
		i.Status.DesiredRevision = i.Status.Activity.Revision
	}
	failed := func(s *policy.RolloutState) {
		s.Instances = append(s.Instances, onNode("b", "b"))
		s.Nodes = append(s.Nodes, readyNode("b"))
		s.Instances[1].Status.FailedRevision = "next"
	}
	replaced := func(s *policy.RolloutState) { s.Sets = []policy.Set{set("s", 1, "a")} }
	for name, test := range map[string]struct {
		a      v1alpha1.WindowsInstance
		places []policy.Slot
		edit   func(*policy.RolloutState)
		says   contract.Reason
		why    string
	}{
		"a closed window":             {asks("a"), nil, closed, contract.ReasonMaintenanceWindowClosed, ""},
		"… and it is removed":         {asks("a", removal), nil, closed, "", ""},
		"… and was told the revision": {asks("a", deletedAt), nil, closed, "", ""},
		"a revision that is halted":   {asks("a"), nil, failed, contract.ReasonRolloutHalted, ""},
		"its Machine is replaced": {asks("a"), []policy.Slot{{Name: policy.MachineName("a"), Node: "a", Machine: "a"}},
			replaced, "", "its Machine is about to be deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := state(test.a)
			test.edit(&s)
			verdict := policy.DecideSlots(test.places, s).Verdicts["a"]
			if verdict.Allowed != (test.says == "" && test.why == "") || verdict.Reason != test.says ||
				test.why != "" && verdict.Why != test.why {
				t.Errorf("%+v", verdict)
			}
		})
	}
}

func TestAMachineHasAPlaceUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	slot := func(age time.Duration) []policy.Slot {
		return []policy.Slot{{Name: policy.MachineName("a"), Node: "a", Machine: "a", Since: metav1.NewTime(noon.Add(-age))}}
	}
	due := policy.ReplaceCandidate{Name: "a", Node: "a", Cause: policy.CauseKeyStale, Set: "s"}
	for name, test := range map[string]struct {
		places []policy.Slot
		due    []policy.ReplaceCandidate
		known  bool
		hosts  []string
		want   int
	}{
		"a Machine that must be replaced":     {nil, []policy.ReplaceCandidate{due}, true, []string{"a", "b"}, 1},
		"a Machine that had a slot":           {slot(time.Hour), []policy.ReplaceCandidate{due}, true, []string{"a", "b"}, 1},
		"the host was not asked yet":          {slot(time.Hour), nil, false, []string{"a", "b"}, 1},
		"it is not to be replaced any more":   {slot(time.Hour), nil, true, []string{"a", "b"}, 0},
		"… and its deletion may still arrive": {slot(time.Minute), nil, true, []string{"a", "b"}, 1},
		"… with a time in the future":         {slot(-time.Hour), nil, true, []string{"a", "b"}, 0},
		"it is being deleted":                 {slot(time.Minute), nil, false, []string{"a!", "b"}, 0},
		"it is gone":                          {slot(time.Minute), nil, false, []string{"b"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := state(onNode("a", "a"), onNode("b", "b"))
			s.Sets, s.Machines, s.IsKnown = []policy.Set{set("s", 2, test.hosts...)}, test.due, test.known
			d := policy.DecideSlots(test.places, s)
			if len(d.Slots) != test.want {
				t.Errorf("%v have slots: %+v", holders(d.Slots), d.Machines)
			}
			if len(test.due) > 0 && (d.Machines["a"].Action != policy.ActReplace || !d.Slots[0].Since.Time.Equal(noon)) {
				t.Errorf("%+v, tried at %s", d.Machines["a"], d.Slots[0].Since)
			}
			fleet := policy.NewFleet(s.Nodes, s.Instances, s.Sets, nil, d.Slots...)
			verdict := policy.MayDisruptAnytime("b", fleet, new(intstr.FromInt32(1)))
			isCounted := slices.Contains(test.hosts, "a") && test.want == 1
			if isCounted == verdict.Allowed && len(test.hosts) == 2 && test.hosts[0] == "a" {
				t.Errorf("another node may be disrupted: %+v", verdict)
			}
		})
	}
}
