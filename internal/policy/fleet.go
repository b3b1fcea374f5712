package policy

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Fleet is every Windows host that is or should be in service, at the time Now.
type Fleet struct {
	Members []Member
	Sets    []Set
	// Now is the time of this description. UnavailableAfter is how long a node must be not Ready before its pods count
	// as lost.
	Now              time.Time
	UnavailableAfter time.Duration
}

// Member is a Windows node, or a Windows host whose node is deleted.
type Member struct {
	// Node is the node's name. Host is the name of the node's instance, or empty.
	Node, Host string
	// Unavailable is why the member isn't in service, or soon won't be. It is empty for a member in service.
	Unavailable string
	// Cordoned reports that someone else cordoned the node. Behind reports that the node doesn't have the desired
	// revision yet. Both are set only if the node has no worse problem, so its pods run.
	Cordoned, Behind bool
	// Disrupted reports that the operator disrupts the node: the node has a slot, or is being removed. Begun reports
	// that the operator has begun the disruption, and that the operator's cordon is still on the node.
	Disrupted, Begun bool
	// Leaving reports that the removal of the host was requested. Removing reports that the removal has begun.
	// WithoutSlot reports that the host or its Machine is being removed without a slot.
	Leaving, Removing, WithoutSlot bool
	// Ready is whether kubelet reports Ready. NotReady is when the node stopped being Ready, or zero without a Node.
	Ready    bool
	NotReady Since
	// Set is the UID of the MachineSet that creates a replacement if this host is deleted, or empty.
	Set types.UID
}

// IsLost reports whether a node's pods are already lost, because the operator has begun to disrupt the node, or because
// the node hasn't been Ready for the time UnavailableAfter.
func (f Fleet) IsLost(node string) bool {
	return slices.ContainsFunc(f.Members, func(m Member) bool {
		return m.Node == node && (m.Begun || m.Unavailable != "" && f.isOut(m))
	})
}

// isOut reports whether a member's pods count as lost: its node hasn't been Ready for the time UnavailableAfter.
func (f Fleet) isOut(m Member) bool {
	return !m.Ready && m.NotReady.Left(f.UnavailableAfter, Witnessed, f.Now) <= 0
}

// isGivenUp reports whether a member is being removed without a slot, and its node has been out of service for the time
// UnavailableAfter. Such a member isn't expected back: its removal may never end, for example if the cloud does not
// delete the VM.
func (f Fleet) isGivenUp(m Member) bool { return m.WithoutSlot && f.isOut(m) }

// Set is a group of hosts with a fixed size, such as a MachineSet.
type Set struct {
	UID      types.UID
	Name     string
	Replicas int
	// Minimum is how many hosts of the set must always be in service, as a number or a percentage of Replicas. If it is
	// nil, only the budget limits disruptions.
	Minimum *intstr.IntOrString
	// UserData is the name of the Secret with the user data of new hosts, or empty if the name is unknown.
	UserData string
	// Leaving is true if the set itself is being deleted.
	Leaving bool
	Hosts   []SetHost
}

// SetHost is a host of a Set.
type SetHost struct {
	Name string
	// Node is the Node that the host's Machine refers to, or empty. It is known even if the instance lost its status.
	Node    string
	Leaving bool
	// Refused is set if the host can never join, because its name is invalid and the name of a Machine can't change.
	Refused bool
}

// NewFleet returns the fleet of all Windows nodes and instances, except Nodes that the operator cordoned because they
// have no instance: they would always be unavailable. The map `seen` has the times when nodes stopped being Ready.
func NewFleet(nodes []corev1.Node, instances []v1alpha1.WindowsInstance, sets []Set, seen map[string]Since,
	slots ...Slot) Fleet {
	sets = withReplaced(sets, slots)
	byNode := map[string]*v1alpha1.WindowsInstance{}
	for i := range instances {
		if name := instances[i].Status.NodeName; name != "" {
			byNode[name] = &instances[i]
		}
	}
	made := madeBy(sets, byNode)
	fleet := Fleet{Sets: sets}
	there := map[string]bool{}
	for i := range nodes {
		name := nodes[i].Name
		if byNode[name] == nil && made.byNode[name] == "" && isOrphan(&nodes[i]) {
			continue
		}
		there[name] = true
		member := memberOf(&nodes[i], byNode[name], made, slots)
		member.NotReady = seen[name]
		fleet.Members = append(fleet.Members, member)
	}
	for name, instance := range byNode {
		if !there[name] && instance.Status.Joined() && instance.DeletionTimestamp.IsZero() {
			hasSlot := SlotOf(slots, instance) != nil
			fleet.Members = append(fleet.Members, Member{Node: name, Host: instance.Name,
				Unavailable: "its Node is gone", Disrupted: hasSlot,
				WithoutSlot: made.hosts[instance.Name].Leaving && !hasSlot, Set: made.setOf[instance.Name]})
		}
	}
	return fleet
}

// withReplaced returns a copy of the sets, in which each host whose Machine has a slot is marked as leaving.
func withReplaced(sets []Set, slots []Slot) []Set {
	sets = slices.Clone(sets)
	for i := range sets {
		sets[i].Hosts = slices.Clone(sets[i].Hosts)
		for j := range sets[i].Hosts {
			host := &sets[i].Hosts[j]
			host.Leaving = host.Leaving || isHolder(slots, MachineName(host.Name))
		}
	}
	return sets
}

// made contains the hosts of all sets, and the UID of each host's set. The keys are the names of the hosts' instances.
// byNode maps the name of a Node to the name of the instance, for instances whose status has lost the Node's name.
type made struct {
	hosts  map[string]SetHost
	setOf  map[string]types.UID
	byNode map[string]string
}

// madeBy collects the hosts of sets. byNode contains the instances whose status has a Node's name, by that name.
func madeBy(sets []Set, byNode map[string]*v1alpha1.WindowsInstance) made {
	all := made{hosts: map[string]SetHost{}, setOf: map[string]types.UID{}, byNode: map[string]string{}}
	names := map[string]bool{}
	for _, instance := range byNode {
		names[instance.Name] = true
	}
	for _, set := range sets {
		for _, host := range set.Hosts {
			all.hosts[host.Name], all.setOf[host.Name] = host, set.UID
			if host.Node != "" && !names[host.Name] {
				all.byNode[host.Node] = host.Name
			}
		}
	}
	return all
}

// Count returns how many hosts of a set are not Ready, are not being deleted, and satisfy the function `wanted`.
func (f Fleet) Count(set types.UID, wanted func(host string) bool) (count int) {
	serve := map[string]bool{}
	for _, m := range f.Members {
		serve[m.Host] = serve[m.Host] || m.Ready
	}
	for _, s := range f.Sets {
		if s.UID != set {
			continue
		}
		for _, host := range s.Hosts {
			if !host.Leaving && !serve[host.Name] && wanted(host.Name) {
				count++
			}
		}
	}
	return count
}

// memberOf returns the member for one node. instance is nil if no instance has the node. If the operator disrupts the
// node, Unavailable is set even if the Node is Ready, because the Node shows the disruption only later.
func memberOf(node *corev1.Node, instance *v1alpha1.WindowsInstance, made made, slots []Slot) Member {
	slot := SlotOf(slots, instance)
	member := Member{Node: node.Name, Host: made.byNode[node.Name], Ready: IsReady(node),
		// Check the cordon and the annotation, because someone else may have removed only the cordon.
		Begun: node.Spec.Unschedulable && node.Annotations[contract.CordonedAnnotation] == "true"}
	if instance != nil {
		member.Host, member.Leaving = instance.Name, !instance.DeletionTimestamp.IsZero()
		member.Removing = member.Leaving && instance.Status.Phase == v1alpha1.PhaseRemoving
	}
	member.Set = made.setOf[member.Host]
	member.Unavailable = whyDisrupted(instance, slot, made.hosts[member.Host].Leaving)
	member.Disrupted = member.Unavailable != ""
	member.WithoutSlot = member.Disrupted && slot == nil
	isBehind := node.Annotations[contract.RevisionAnnotation] != node.Annotations[contract.DesiredRevisionAnnotation]
	switch {
	case member.Disrupted:
	case !member.Ready:
		member.Unavailable = "it is not Ready"
	case member.Begun:
		member.Unavailable = "it is cordoned by the operator"
	case node.Spec.Unschedulable:
		member.Unavailable, member.Cordoned, member.Behind = "it is cordoned", true, isBehind
	case isBehind:
		member.Unavailable, member.Behind = "it is not at its desired revision yet", true
	}
	return member
}

// whyDisrupted returns why a node is or will soon be disrupted, or "". The instance is nil if no instance has the node.
// If the removal of an instance needs a slot, the node stays in service until the instance has one.
func whyDisrupted(instance *v1alpha1.WindowsInstance, slot *Slot, machineLeaves bool) string {
	switch {
	case machineLeaves:
		return "its Machine is being deleted"
	case instance == nil:
		return ""
	case slot != nil:
		return slot.why()
	case !instance.DeletionTimestamp.IsZero() && !NeedsSlot(instance.Spec.RemovalPolicy):
		return "its instance is being removed"
	}
	return ""
}

// NeedsSlot reports whether the removal of a host needs a slot in the rollout budget. A forced removal needs none,
// because it must not wait. A host that is destroyed together with its Machine needs none, because it is already lost.
func NeedsSlot(removal v1alpha1.RemovalPolicy) bool {
	return removal != v1alpha1.RemovalForce && removal != v1alpha1.RemovalDiscard
}

// ReadyCondition returns a Node's condition Ready, or nil if the Node does not have it yet.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady reports whether a Node is Ready.
func IsReady(node *corev1.Node) bool {
	c := ReadyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}
