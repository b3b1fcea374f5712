package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

func readyNode(name string, edits ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{contract.RevisionAnnotation: "1", contract.DesiredRevisionAnnotation: "1"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue}}},
	}
	for _, edit := range edits {
		edit(&n)
	}
	return n
}

func notReady(n *corev1.Node)   { n.Status.Conditions[0].Status = corev1.ConditionUnknown }
func unreported(n *corev1.Node) { n.Status.Conditions = nil }
func behind(n *corev1.Node)     { n.Annotations[contract.DesiredRevisionAnnotation] = "2" }
func ours(n *corev1.Node) {
	n.Annotations[contract.CordonedAnnotation], n.Spec.Unschedulable = "true", true
	n.Annotations[contract.InstanceAnnotation] = "ns/" + n.Name
}
func orphaned(n *corev1.Node) {
	n.Annotations[contract.CordonedAnnotation], n.Spec.Unschedulable = "true", true
	n.Annotations[contract.BootIDAnnotation] = "1"
}
func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

// onNode returns the instance of a node. name is the name of the instance. If the instance has a Machine, it is the
// Machine's name as well.
func onNode(name, node string, edits ...func(*v1alpha1.WindowsInstance)) v1alpha1.WindowsInstance {
	i := v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status: v1alpha1.WindowsInstanceStatus{NodeName: node, HeldRevision: "1"}}
	for _, edit := range edits {
		edit(&i)
	}
	return i
}

func leavingInstance(i *v1alpha1.WindowsInstance) {
	now := metav1.Now()
	i.DeletionTimestamp = &now
	i.Status.Slot = &v1alpha1.Slot{Since: &now}
}
func deletedInstance(i *v1alpha1.WindowsInstance) { now := metav1.Now(); i.DeletionTimestamp = &now }
func claiming(i *v1alpha1.WindowsInstance) {
	i.Status.Slot = &v1alpha1.Slot{Since: new(metav1.Now())}
}

// places returns the slots that are in the statuses of instances.
func places(instances []v1alpha1.WindowsInstance) (all []policy.Slot) {
	for _, i := range instances {
		if i.Status.HasSlot() {
			all = append(all, policy.Slot{Name: string(i.UID), Node: i.Status.NodeName})
		}
	}
	return all
}
func forced(i *v1alpha1.WindowsInstance)  { i.Spec.RemovalPolicy = v1alpha1.RemovalForce }
func joining(i *v1alpha1.WindowsInstance) { i.Status.HeldRevision = "" }

// set returns a MachineSet with hosts. If a host's name ends in !, the host is being deleted.
func set(uid string, replicas int, hosts ...string) policy.Set {
	s := policy.Set{UID: types.UID(uid), Name: "MachineSet " + uid, Replicas: replicas}
	for _, host := range hosts {
		name, leaving := strings.CutSuffix(host, "!")
		s.Hosts = append(s.Hosts, policy.SetHost{Name: name, Leaving: leaving})
	}
	return s
}

func leavingSet(s policy.Set) policy.Set { s.Leaving = true; return s }

func number(n int) *intstr.IntOrString     { v := intstr.FromInt(n); return &v }
func percent(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

func TestMayDisruptAnytime(t *testing.T) {
	t.Parallel()
	type nodes = []corev1.Node
	type instances = []v1alpha1.WindowsInstance
	type sets = []policy.Set
	a, b, c := readyNode("a"), readyNode("b"), readyNode("c")
	for name, test := range map[string]struct {
		nodes     nodes
		instances instances
		sets      sets
		budget    *intstr.IntOrString
		allowed   bool
	}{
		"all is well and the default budget is one": {nodes: nodes{a, b}, allowed: true},
		"one node is not Ready":                     {nodes: nodes{a, readyNode("b", notReady)}},
		"one node never reported its state":         {nodes: nodes{a, readyNode("b", unreported)}},
		"one is on its way to another revision":     {nodes: nodes{a, readyNode("b", behind)}},
		"one is cordoned by us":                     {nodes: nodes{a, readyNode("b", ours)}},
		"one was taken out of service because no instance has it": {nodes: nodes{a, readyNode("b", orphaned)},
			instances: instances{onNode("ia", "a")}, allowed: true},
		"it is off besides": {nodes: nodes{a, readyNode("b", orphaned, notReady)},
			instances: instances{onNode("ia", "a")}, allowed: true},
		"an instance has it again": {nodes: nodes{a, readyNode("b", orphaned)},
			instances: instances{onNode("ia", "a"), onNode("ib", "b")}},
		"one is cordoned by an administrator": {nodes: nodes{a, readyNode("b", cordoned)}},
		"one node was granted a slot and does not show it": {nodes: nodes{a, b},
			instances: instances{onNode("ib", "b", claiming)}},
		"one leaves": {nodes: nodes{a, b},
			instances: instances{onNode("ib", "b", leavingInstance)}},
		"one is deleted and has yet to get its turn": {nodes: nodes{a, b},
			instances: instances{onNode("ib", "b", deletedInstance)}, allowed: true},
		"a dead node is being removed": {nodes: nodes{a, readyNode("b", notReady)},
			instances: instances{onNode("ib", "b", deletedInstance)}, allowed: true},
		"the Machine of one is being deleted": {nodes: nodes{a, b}, instances: instances{onNode("mb", "b")},
			sets: sets{set("s", 1, "mb!")}},
		"the Machine of one is being deleted, and it has been down for long": {nodes: nodes{a, readyNode("b", notReady), c},
			instances: instances{onNode("ma", "a"), onNode("mb", "b"), onNode("mc", "c")},
			sets:      sets{set("s", 2, "ma", "mb!", "mc")}, allowed: true},
		"the Machine of one is being deleted, and it still serves": {nodes: nodes{a, readyNode("b", cordoned), c},
			instances: instances{onNode("ma", "a"), onNode("mb", "b"), onNode("mc", "c")},
			sets:      sets{set("s", 2, "ma", "mb!", "mc")}},
		"the Machine of one is being deleted, it has been down for long, and no other serves for it": {
			nodes:     nodes{a, readyNode("b", notReady)},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{set("s", 2, "ma", "mb!")}},
		"the Machine of one is being deleted, it has been down for long, and it has its place": {
			nodes:     nodes{a, readyNode("b", notReady), c},
			instances: instances{onNode("ma", "a"), onNode("mb", "b", claiming), onNode("mc", "c")},
			sets:      sets{set("s", 2, "ma", "mb!", "mc")}},
		"the Machine of one is being deleted, and its Node is gone": {nodes: nodes{a, c},
			instances: instances{onNode("ma", "a"), onNode("mb", "b"), onNode("mc", "c")},
			sets:      sets{set("s", 2, "ma", "mb!", "mc")}, allowed: true},
		"the Machine of one is being deleted, its Node is gone, and no other serves for it": {nodes: nodes{a},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{set("s", 2, "ma", "mb!")}},
		"the removal of one is forced, and it has been down for long": {nodes: nodes{a, readyNode("b", notReady)},
			instances: instances{onNode("ib", "b", deletedInstance, forced)}, allowed: true},
		"the removal of one is forced, and it still serves": {nodes: nodes{a, b},
			instances: instances{onNode("ib", "b", deletedInstance, forced)}},
		"the node itself is down, and another whose Machine is being deleted has been down for long": {
			nodes:     nodes{readyNode("a", notReady), readyNode("b", notReady)},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{set("s", 1, "ma", "mb!")}, allowed: true},
		"the Node of one that had joined is gone": {nodes: nodes{a}, instances: instances{onNode("ib", "b")}},
		"a host that never joined has no Node": {nodes: nodes{a}, instances: instances{onNode("ib", "b", joining)},
			allowed: true},

		"the node itself is down already": {nodes: nodes{readyNode("a",
			notReady), readyNode("b", notReady)}, allowed: true},
		"the node itself was granted a place before": {nodes: nodes{a,
			readyNode("b", notReady)}, instances: instances{onNode("ia", "a", claiming)}, allowed: true},
		"the node itself is cordoned by an administrator, and nobody else is down": {nodes: nodes{readyNode("a",
			cordoned), b}, allowed: true},
		"the node itself is cordoned by an administrator, and another is down": {nodes: nodes{readyNode("a", cordoned),
			readyNode("b", notReady)}},

		"the node itself is behind, and so is another": {nodes: nodes{readyNode("a", behind),
			readyNode("b", behind)}, allowed: true},
		"the node itself is behind, and another is down": {nodes: nodes{readyNode("a", behind),
			readyNode("b", notReady)}},
		"the node itself is behind, and another has its place": {nodes: nodes{readyNode("a", behind),
			readyNode("b", behind)}, instances: instances{onNode("ib", "b", claiming)}},
		"the node itself is behind, and another is behind and cordoned by an administrator": {nodes: nodes{
			readyNode("a", behind), readyNode("b", behind, cordoned)}},
		"the node itself is behind and cordoned by an administrator, and another is behind": {nodes: nodes{
			readyNode("a", behind, cordoned), readyNode("b", behind)}, allowed: true},
		"the node itself is behind, and another is behind and has its operator's cordon of before": {nodes: nodes{
			readyNode("a", behind), readyNode("b", behind, ours)}},
		"the node itself is behind, and another is behind, was cordoned by an administrator and has its place": {
			nodes:     nodes{readyNode("a", behind), readyNode("b", behind, cordoned)},
			instances: instances{onNode("ib", "b", claiming)}},

		"the node itself is down, and another that is down has its place": {nodes: nodes{readyNode("a", notReady),
			readyNode("b", notReady)}, instances: instances{onNode("ib", "b", claiming)}},
		"the node itself is down, and the budget is zero": {nodes: nodes{readyNode("a", notReady)}, budget: number(0)},
		"the node itself has its operator's cordon of before, and others are down": {nodes: nodes{readyNode("a", ours),
			readyNode("b", notReady)}, allowed: true},

		"a budget of two with one down": {nodes: nodes{a, readyNode("b", notReady)},
			budget: number(2), allowed: true},
		"a budget of two with two down": {nodes: nodes{a, readyNode("b", notReady),
			readyNode("c", behind)}, budget: number(2)},
		"a budget of zero": {nodes: nodes{a}, budget: number(0)},
		"a percentage is rounded up": {nodes: nodes{a, b, c}, budget: percent("10%"),
			allowed: true},
		"a percentage that is used up": {nodes: nodes{a, readyNode("b", notReady), c},
			budget: percent("10%")},
		"a hundred per cent": {nodes: nodes{a, readyNode("b", notReady)}, budget: percent("100%"), allowed: true},
		"nonsense stops everything rather than all at once": {nodes: nodes{a}, budget: percent("many")},

		"a set lacks a host": {nodes: nodes{a, b},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{set("s", 3, "ma", "mb")}},
		"a set has a new host that is no node yet": {nodes: nodes{a, b},
			instances: instances{onNode("ma", "a"), onNode("mb", "b"), onNode("mc", "", joining)},
			sets:      sets{set("s", 3, "ma", "mb", "mc")}},
		"a set is complete": {nodes: nodes{a, b},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{set("s", 2, "ma", "mb")},
			allowed: true},
		"a set has one too many": {nodes: nodes{a, b},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{set("s", 1, "ma", "mb")},
			allowed: true},
		"hosts that a set lacks count in a percentage as well": {nodes: nodes{a, b},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{set("s", 4, "ma", "mb")},
			budget: percent("51%"), allowed: true},
		"no more hosts count as missing than a set lacks": {nodes: nodes{a, b},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{set("s", 4, "ma", "mb")},
			budget: percent("50%")},
		"a host that is down and missing counts once": {
			nodes: nodes{a, readyNode("b", notReady)}, instances: instances{onNode("ma", "a"), onNode("mb", "b")},
			sets: sets{set("s", 2, "ma", "mb")}, budget: number(2), allowed: true,
		},
		"a set that is being deleted lacks nothing": {nodes: nodes{a},
			instances: instances{onNode("ma", "a")}, sets: sets{leavingSet(set("s", 3, "ma"))}, allowed: true},
		"… but its hosts that are down are down": {nodes: nodes{a, readyNode("b", notReady)},
			instances: instances{onNode("ma", "a"), onNode("mb", "b")}, sets: sets{leavingSet(set("s", 3, "ma", "mb"))}},
		"another set is complete, this one is not": {
			nodes: nodes{a, b}, instances: instances{onNode("ma", "a"), onNode("mb", "b")},
			sets: sets{set("s", 1, "ma"), set("z", 2, "mb")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := policy.MayDisruptAnytime("a", policy.NewFleet(test.nodes, test.instances, test.sets, nil, places(test.instances)...), test.budget)
			if verdict.Allowed != test.allowed {
				t.Errorf("allowed = %v: %s", verdict.Allowed, verdict.Why)
			}
			if verdict.Why == "" {
				t.Error("the verdict has no reason")
			}
		})
	}
}

func TestA83_AHostThatCanNeverJoinIsNotMissing(t *testing.T) {
	t.Parallel()
	refused := func(s policy.Set, name string) policy.Set {
		s.Hosts = append(s.Hosts, policy.SetHost{Name: name, Refused: true})
		return s
	}
	for name, test := range map[string]struct {
		nodes     []corev1.Node
		instances []v1alpha1.WindowsInstance
		set       policy.Set
		allowed   bool
		says      string
	}{
		"its name is refused": {set: refused(set("s", 1), "long"), allowed: true, says: "0 of 1 nodes are unavailable"},
		"with another host that serves": {nodes: []corev1.Node{readyNode("b")},
			instances: []v1alpha1.WindowsInstance{onNode("mb", "b")}, set: refused(set("s", 2, "mb"), "long"), allowed: true},
		"with another host that still boots":    {set: refused(set("s", 2, "boots"), "long"), says: "1 of 1 have no node"},
		"with another host that no set created": {set: refused(set("s", 2), "long"), says: "1 of 1 have no node"},
		"it is being deleted":                   {set: set("s", 1, "long!"), says: "1 of 1 have no node"},
		"it was a node and its Node is gone": {instances: []v1alpha1.WindowsInstance{onNode("long", "b")},
			set: refused(set("s", 1), "long"), says: "b: its Node is gone"},
		"it was a node and is down": {nodes: []corev1.Node{readyNode("b", notReady)},
			instances: []v1alpha1.WindowsInstance{onNode("long", "b")}, set: refused(set("s", 1), "long"),
			says: "b: it is not Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := policy.NewFleet(append(test.nodes, readyNode("a")), test.instances, []policy.Set{test.set}, nil,
				places(test.instances)...)
			verdict := policy.MayDisruptAnytime("a", fleet, nil)
			if verdict.Allowed != test.allowed || !strings.Contains(verdict.Why, test.says) {
				t.Errorf("allowed = %v: %s", verdict.Allowed, verdict.Why)
			}
		})
	}
}

func TestANodeIsOutOfServiceAfterItsTimeOnly(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		since, seen time.Duration
		allowed     bool
	}{"a blip": {4 * time.Minute, 4 * time.Minute, false}, "for long": {5 * time.Minute, 5 * time.Minute, true},
		"for long, which this operator has just seen": {time.Hour, 59 * time.Second, false},
		"for long, of which this operator saw a bit":  {time.Hour, time.Minute, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			since := policy.Since{Began: now.Add(-test.since), Seen: now.Add(-test.seen)}
			fleet := policy.NewFleet([]corev1.Node{readyNode("a", notReady), readyNode("b", notReady)}, nil, nil,
				map[string]policy.Since{"a": since})
			fleet.Now, fleet.UnavailableAfter = now, 5*time.Minute
			if verdict := policy.MayDisruptAnytime("a", fleet, nil); verdict.Allowed != test.allowed {
				t.Errorf("allowed = %v: %s", verdict.Allowed, verdict.Why)
			}
			if verdict := policy.MayDisrupt("a", fleet, nil, "closed"); verdict.Allowed ||
				test.allowed && verdict.Reason != contract.ReasonMaintenanceWindowClosed {
				t.Errorf("in a closed window: %+v", verdict)
			}
		})
	}
}

func TestANodeWhoseMachineIsBeingDeletedCountsUntilItHasBeenDownForLong(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	since := func(ago time.Duration) policy.Since { return policy.Since{Began: now.Add(-ago), Seen: now.Add(-ago)} }
	fleet := func(of, other time.Duration, slot string) policy.Fleet {
		nodes := []corev1.Node{readyNode("a"), readyNode("b", notReady), readyNode("c")}
		if of > 0 {
			notReady(&nodes[0])
		}
		instances := []v1alpha1.WindowsInstance{onNode("ma", "a"), onNode("mb", "b"), onNode("mc", "c")}
		if slot != "" {
			claiming(&instances[1])
		}
		fleet := policy.NewFleet(nodes, instances, []policy.Set{set("s", 2, "ma", "mb!", "mc")},
			map[string]policy.Since{"a": since(of), "b": since(other)}, places(instances)...)
		fleet.Now, fleet.UnavailableAfter = now, 5*time.Minute
		return fleet
	}
	for name, test := range map[string]struct {
		fleet   policy.Fleet
		allowed bool
	}{
		"a blip, and the node itself serves":        {fleet(0, 4*time.Minute, ""), false},
		"for long, and the node itself serves":      {fleet(0, 5*time.Minute, ""), true},
		"for long, and it was given a place":        {fleet(0, 5*time.Minute, "b"), false},
		"a blip, and the node itself is down":       {fleet(time.Hour, 4*time.Minute, ""), false},
		"for long, and the node itself is down":     {fleet(time.Hour, 5*time.Minute, ""), true},
		"for long, the node is down, has the place": {fleet(time.Hour, 5*time.Minute, "b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if verdict := policy.MayDisruptAnytime("a", test.fleet, nil); verdict.Allowed != test.allowed {
				t.Errorf("allowed = %v: %s", verdict.Allowed, verdict.Why)
			}
		})
	}
}

func TestAVerdictNamesWhoIsInTheWay(t *testing.T) {
	t.Parallel()
	nodes := []corev1.Node{readyNode("a")}
	for n := range 20 {
		nodes = append(nodes, readyNode(fmt.Sprintf("down-%02d", n), notReady))
	}
	verdict := policy.MayDisruptAnytime("a", policy.NewFleet(nodes, nil, []policy.Set{set("s", 2)}, nil), nil)
	if !strings.Contains(verdict.Why, "22 of 23") ||
		!strings.Contains(verdict.Why, "MachineSet s: 2 of 2 have no node") || len(verdict.Why) > 300 {
		t.Error(verdict.Why)
	}
}

// Slots pass from node to node within minutes, so a message must not list the nodes with a slot. It lists the nodes
// that stay unavailable until a person acts.
func TestWhatIsShownOfAFullBudgetNamesWhoHasNoPlace(t *testing.T) {
	t.Parallel()
	instances := []v1alpha1.WindowsInstance{onNode("mb", "b", claiming), onNode("md", "d"), onNode("me", "e", claiming)}
	fleet := policy.NewFleet([]corev1.Node{readyNode("a"), readyNode("b"), readyNode("c", cordoned), readyNode("d"),
		readyNode("e")}, instances, []policy.Set{set("s", 1, "md!")}, nil, places(instances)...)
	const want = "no more nodes may be unavailable, as maxUnavailable is 1 (c: it is cordoned, " +
		"d: its Machine is being deleted)"
	if verdict := policy.MayDisruptAnytime("a", fleet, nil); verdict.Allowed || verdict.Shown() != want {
		t.Errorf("%+v", verdict)
	}
	if verdict := policy.MayDisrupt("a", fleet, new(intstr.FromInt32(5)), "closed"); verdict.Shown() != "closed" {
		t.Errorf("%+v", verdict)
	}
}
