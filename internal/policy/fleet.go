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

// Fleet is every Windows host that serves or should, at one moment.
type Fleet struct {
	Members []Member
	Sets    []Set
	// Now is that moment. UnavailableAfter is how long a node must be not Ready until its pods are
	// taken to be lost already.
	Now              time.Time
	UnavailableAfter time.Duration
}

// Member is a Windows node, or the place of one that is gone.
type Member struct {
	// Node is its name, and Host that of its instance; empty when it has none.
	Node, Host string
	// Unavailable says in words why it serves nobody or soon will not, whatever the cause; empty while it
	// serves.
	Unavailable string
	// Cordoned says that somebody else cordoned it, Behind that it has yet to reach the revision that was
	// requested, each where nothing is worse: its pods are well.
	Cordoned, Behind bool
	// Disrupted says that the operator disrupts it, in a place or because it is removed; Begun that it did, and that
	// the operator's cordon is still there.
	Disrupted, Begun bool
	// Leaving says that its host is to be removed, Removing that this has begun. Unplaced says that it is
	// being removed, or its Machine is, without a place.
	Leaving, Removing, Unplaced bool
	// Ready is what kubelet reports; NotReady is since when it is not, zero for a node that is gone.
	Ready    bool
	NotReady Since
	// Set is what makes another host when this one goes; empty for a host that nobody makes anew.
	Set types.UID
}

// IsLost says that a node's pods are lost already, because the operator had begun with it, or it has not been Ready
// for long.
func (f Fleet) IsLost(node string) bool {
	return slices.ContainsFunc(f.Members, func(m Member) bool {
		return m.Node == node && (m.Begun || m.Unavailable != "" && f.isOut(m))
	})
}

// isOut says that a member's pods are taken to be lost already: it has not been Ready for long.
func (f Fleet) isOut(m Member) bool {
	return !m.Ready && m.NotReady.Left(f.UnavailableAfter, Witnessed, f.Now) <= 0
}

// isGivenUp says of a member that is being removed without a place that nobody waits for it: its node has been out
// of service for long, and what removes it may never end, as where the cloud does not delete the VM.
func (f Fleet) isGivenUp(m Member) bool { return m.Unplaced && f.isOut(m) }

// Set is a group of hosts that is kept at a number, such as a MachineSet.
type Set struct {
	UID  types.UID
	Name string
	// Replicas is how many hosts it should have.
	Replicas int
	// Minimum is how many of them its owner wants to serve at all times, as a number or a
	// percentage of Replicas; nil leaves it to the budget.
	Minimum *intstr.IntOrString
	// UserData names the Secret that new hosts get their user data from; empty when nobody knows.
	UserData string
	// Leaving is set once the set itself is being deleted.
	Leaving bool
	// Hosts are the hosts that it has, by the name of their instances.
	Hosts []SetHost
}

// SetHost is a host of a Set.
type SetHost struct {
	Name string
	// Node is its Node as its Machine names it; empty while that names none. An instance that lost its status names
	// none, either.
	Node string
	// Leaving is set once the host is being deleted.
	Leaving bool
	// Refused is set if the host can never join, because of a name that a Machine can't change.
	Refused bool
}

// NewFleet puts together what is known: all Windows nodes, all instances, the sets that make hosts
// again, since when each node is not Ready, by name, and the places that were given out. A Node without an instance
// that the operator has taken out of service does not count: it would hold back all others for as long as it is there.
func NewFleet(nodes []corev1.Node, instances []v1alpha1.WindowsInstance, sets []Set, seen map[string]Since,
	places ...Place) Fleet {
	sets = withReplaced(sets, places)
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
		member := memberOf(&nodes[i], byNode[name], made, places)
		member.NotReady = seen[name]
		fleet.Members = append(fleet.Members, member)
	}
	for name, instance := range byNode {
		if !there[name] && instance.Status.JoinedTime != nil && instance.DeletionTimestamp.IsZero() {
			hasPlace := PlaceOf(places, instance) != nil
			fleet.Members = append(fleet.Members, Member{Node: name, Host: instance.Name,
				Unavailable: "its Node is gone", Disrupted: hasPlace,
				Unplaced: made.hosts[instance.Name].Leaving && !hasPlace, Set: made.setOf[instance.Name]})
		}
	}
	return fleet
}

// withReplaced are the sets in which each Machine that has a place is being deleted.
func withReplaced(sets []Set, places []Place) []Set {
	sets = slices.Clone(sets)
	for i := range sets {
		sets[i].Hosts = slices.Clone(sets[i].Hosts)
		for j := range sets[i].Hosts {
			host := &sets[i].Hosts[j]
			host.Leaving = host.Leaving || isHolder(places, MachineName(host.Name))
		}
	}
	return sets
}

// made are the hosts of sets, and which set made each, by the name of their instances. byNode has that name by their
// Nodes, of those whose instances name none.
type made struct {
	hosts  map[string]SetHost
	setOf  map[string]types.UID
	byNode map[string]string
}

// madeBy looks at the hosts of sets. byNode are the instances that name their Nodes.
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

// Count says how many hosts of a set stay, serve nobody, and are as wanted.
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

// memberOf looks at one node; instance is nil where none has it. What we have begun comes first: it does not show in
// the Node at once.
func memberOf(node *corev1.Node, instance *v1alpha1.WindowsInstance, made made, places []Place) Member {
	place := PlaceOf(places, instance)
	member := Member{Node: node.Name, Host: made.byNode[node.Name], Ready: IsReady(node),
		// the cordon itself may have been lifted by somebody else
		Begun: node.Spec.Unschedulable && node.Annotations[contract.CordonedAnnotation] == "true"}
	if instance != nil {
		member.Host, member.Leaving = instance.Name, !instance.DeletionTimestamp.IsZero()
		member.Removing = member.Leaving && instance.Status.Phase == v1alpha1.PhaseRemoving
	}
	member.Set = made.setOf[member.Host]
	member.Unavailable = whyDisrupted(instance, place, made.hosts[member.Host].Leaving)
	member.Disrupted = member.Unavailable != ""
	member.Unplaced = member.Disrupted && place == nil
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

// whyDisrupted says why a node is being disrupted, or is about to be; empty when it is not. instance is nil where none
// has it.
// One that is deleted serves until it has its place.
func whyDisrupted(instance *v1alpha1.WindowsInstance, place *Place, machineLeaves bool) string {
	switch {
	case machineLeaves:
		return "its Machine is being deleted"
	case instance == nil:
		return ""
	case place != nil:
		return place.why()
	case !instance.DeletionTimestamp.IsZero() && !NeedsPlace(instance.Spec.RemovalPolicy):
		return "its instance is being removed"
	}
	return ""
}

// NeedsPlace says whether a host that is removed takes a place of the rollout budget first. One
// that is forced does not wait, and one that is destroyed with its Machine is lost already.
func NeedsPlace(removal v1alpha1.RemovalPolicy) bool {
	return removal != v1alpha1.RemovalForce && removal != v1alpha1.RemovalDiscard
}

// ReadyCondition is a Node's condition Ready, nil when nobody has written one yet.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady says whether a Node is Ready.
func IsReady(node *corev1.Node) bool {
	c := ReadyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}
