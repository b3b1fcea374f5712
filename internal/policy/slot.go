package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Slot is an assigned slot in the rollout budget.
type Slot struct {
	// Name identifies the holder of the slot: the UID of an instance, or the result of MachineName.
	Name string `json:"name"`
	// Node is the name of the node that is disrupted, or empty if there is none.
	Node string `json:"node,omitempty"`
	// Machine is the name of the Machine that is replaced, or empty if an instance has the slot.
	Machine string `json:"machine,omitempty"`
	// Since is when the slot was assigned. For a Machine, it is when the operator last tried to delete the Machine.
	Since metav1.Time `json:"since"`
	// IsUsed is set before the slot is written to the instance's status. Then the slot stays until the instance
	// releases it or requests it again.
	IsUsed bool `json:"isUsed,omitempty"`
}

// SlotOf returns the slot of an instance, or nil if the list contains none.
func SlotOf(slots []Slot, instance *v1alpha1.WindowsInstance) *Slot {
	for i := range slots {
		if instance != nil && instance.Status.Slot != nil && slots[i].Name == string(instance.UID) {
			return &slots[i]
		}
	}
	return nil
}

// MachineName returns the name of the slot for the replacement of a Machine.
func MachineName(machine string) string { return "Machine " + machine }

func isHolder(slots []Slot, name string) bool {
	return slices.ContainsFunc(slots, func(p Slot) bool { return p.Name == name })
}

// RolloutState is the input of a decision about slots, read at one moment.
type RolloutState struct {
	Nodes     []corev1.Node
	Instances []v1alpha1.WindowsInstance
	Sets      []Set
	// NotReady is when each Node stopped being Ready, by node name.
	NotReady map[string]Since
	Config   *v1alpha1.WindowsMachineConfig
	// Machines are the Machines to replace. While IsKnown is false, the list is incomplete, and Machines keep slots.
	Machines []ReplaceCandidate
	IsKnown  bool
	// Uses is the UID of the instance that is about to use its slot, or empty.
	Uses types.UID
	Now  time.Time
}

// RolloutDecision is the new list of slots, and the reasons why requests without a slot wait.
type RolloutDecision struct {
	Slots []Slot
	// Verdicts are the decisions about instances that request a slot, by UID.
	Verdicts map[string]Verdict
	// Machines are the decisions about Machines to replace, by name.
	Machines map[string]ReplaceDecision
}

// Replaces reports whether the decision includes the deletion of a Machine.
func (d RolloutDecision) Replaces() bool {
	for _, decision := range d.Machines {
		if decision.Action == ActReplace {
			return true
		}
	}
	return false
}

// lateDeletion is how long a Machine keeps its slot after the last try to delete the Machine, because the API server
// may still execute the request. An API server ends a request after a minute.
const lateDeletion = 2 * time.Minute

// DecideSlots assigns the slots of the rollout budget. If the status of an instance contains a slot, the instance keeps
// the slot even if the list doesn't contain it, because the node is already disrupted. The operator decides again about
// slots that aren't used yet. Requests are served in this order: first requests with an unused slot, then hosts that
// are down, then requests with the fewest failures, then the oldest requests.
func DecideSlots(slots []Slot, s RolloutState) RolloutDecision {
	d := RolloutDecision{Verdicts: map[string]Verdict{}, Machines: map[string]ReplaceDecision{}}
	d.Slots = s.inUse(slots)
	fleet, closed := s.fleet(d.Slots), Closed(s.Config.Spec.Rollout, s.Now)
	for _, request := range s.requests(slots) {
		if !s.allows(request, fleet, closed, &d) {
			continue
		}
		// If the caller is about to delete the Machine or to use the slot, change the slot's time. The list is then
		// written even if it already contains this slot, and the write fails if another operator has changed the list.
		if request.Since.IsZero() || request.candidate != nil || request.Name == string(s.Uses) {
			request.Since = metav1.NewTime(s.Now.Truncate(time.Second))
		}
		if n := slices.IndexFunc(d.Slots, func(p Slot) bool { return p.Name == request.Name }); n >= 0 {
			if request.candidate != nil {
				d.Slots[n].Since = request.Since
			}
			continue
		}
		request.IsUsed = s.Uses != "" && request.Name == string(s.Uses)
		d.Slots = append(d.Slots, request.Slot)
		fleet = s.fleet(d.Slots)
	}
	slices.SortFunc(d.Slots, func(a, b Slot) int { return strings.Compare(a.Name, b.Name) })
	return d
}

// inUse returns the slots that this decision must keep: the slots that instances use, and the slots of Machines whose
// deletion the API server may still execute.
func (s RolloutState) inUse(slots []Slot) (all []Slot) {
	for i := range s.Instances {
		one := &s.Instances[i]
		slot := SlotOf(slots, one)
		if !one.Status.HasSlot() && (slot == nil || !slot.IsUsed || one.UID == s.Uses) {
			continue
		}
		if slot == nil {
			slot = &Slot{IsUsed: true, Name: string(one.UID), Node: one.Status.NodeName,
				Since: *one.Status.Slot.Since}
		}
		all = append(all, *slot)
	}
	for _, slot := range slots {
		stays := slices.ContainsFunc(s.Sets, func(set Set) bool {
			return slices.ContainsFunc(set.Hosts, func(h SetHost) bool { return h.Name == slot.Machine && !h.Leaving })
		})
		if stays && (!s.IsKnown || s.Now.Sub(slot.Since.Time).Abs() < lateDeletion) {
			all = append(all, slot)
		}
	}
	return all
}

func (s RolloutState) fleet(slots []Slot) Fleet {
	fleet := NewFleet(s.Nodes, s.Instances, s.Sets, s.NotReady, slots...)
	fleet.Now, fleet.UnavailableAfter = s.Now, v1alpha1.DefaultUnavailableAfter
	if after := s.Config.Spec.Rollout.UnavailableAfter; after != nil {
		fleet.UnavailableAfter = after.Duration
	}
	return fleet
}

type request struct {
	Slot
	instance  *v1alpha1.WindowsInstance
	candidate *ReplaceCandidate
	// isDown reports that the instance's node is not Ready, or that the Machine's host never accepted a key.
	isDown   bool
	failures int32
	created  time.Time
}

// requests returns the requests in the order in which they must be decided.
func (s RolloutState) requests(slots []Slot) (all []request) {
	ready := map[string]bool{}
	for i := range s.Nodes {
		ready[s.Nodes[i].Name] = IsReady(&s.Nodes[i])
	}
	for i := range s.Instances {
		one := &s.Instances[i]
		status := &one.Status
		if status.Slot == nil {
			continue
		}
		r := request{Slot: Slot{Name: string(one.UID), Node: status.NodeName}, instance: one,
			isDown: !ready[status.NodeName], failures: status.Failures, created: one.CreationTimestamp.Time}
		if slot := SlotOf(slots, one); slot != nil {
			r.Slot = *slot
		}
		if status.Activity != nil {
			r.failures += status.Activity.Tries
		}
		all = append(all, r)
	}
	for i := range s.Machines {
		one := &s.Machines[i]
		r := request{Slot: Slot{Name: MachineName(one.Name), Node: one.Node, Machine: one.Name}, candidate: one,
			isDown: one.Cause == CauseKeyRefused, created: one.CreatedAt}
		if n := slices.IndexFunc(slots, func(p Slot) bool { return p.Name == r.Name }); n >= 0 {
			r.Slot = slots[n]
		}
		all = append(all, r)
	}
	first := func(yes bool) int {
		if yes {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b request) int {
		return cmp.Or(cmp.Compare(first(!a.Since.IsZero()), first(!b.Since.IsZero())),
			cmp.Compare(first(a.isDown), first(b.isDown)), cmp.Compare(a.failures, b.failures),
			a.created.Compare(b.created), strings.Compare(a.Name, b.Name))
	})
	return all
}

// The method `allows` decides about one request, records the decision in d, and returns whether it grants a slot.
func (s RolloutState) allows(r request, fleet Fleet, closed string, d *RolloutDecision) bool {
	rollout := s.Config.Spec.Rollout
	if r.candidate != nil {
		c := *r.candidate
		if isHolder(d.Slots, r.Name) { // don't count the request's own slot against it
			fleet = s.fleet(slices.DeleteFunc(slices.Clone(d.Slots), func(p Slot) bool { return p.Name == r.Name }))
		}
		c.Due = fleet.Count(c.Set, func(host string) bool {
			return slices.ContainsFunc(s.Machines, func(m ReplaceCandidate) bool { return m.Name == host })
		})
		decision := DecideReplace(c, fleet, rollout.MaxUnavailable, closed)
		d.Machines[c.Name] = decision
		return decision.Action == ActReplace
	}
	status := &r.instance.Status
	verdict := Verdict{Allowed: true, Why: "it has a slot already"}
	if !isHolder(d.Slots, r.Name) {
		verdict = MayDisrupt(r.Node, fleet, rollout.MaxUnavailable, closed)
		// A closed window doesn't delay a removal, because the user chose the time of the removal. If the operator
		// already requested a revision from the daemon, a closed window doesn't delay the change to this revision
		// either.
		if status.IsRequested() || r.instance.Purpose() == v1alpha1.ActivityRemove {
			verdict = MayDisruptAnytime(r.Node, fleet, rollout.MaxUnavailable)
		}
		if isHolder(d.Slots, MachineName(r.instance.Name)) {
			verdict = Verdict{Why: "its Machine is about to be deleted"}
		}
		if verdict.Allowed {
			if halted := Halted(s.revisionToTry(r.instance), s.Config, s.Instances); halted != "" {
				verdict = Verdict{Reason: contract.ReasonRolloutHalted, Why: halted}
			}
		}
	}
	d.Verdicts[r.Name] = verdict
	return verdict.Allowed
}

// revisionToTry returns the revision that a node will change to with its slot. It returns "" if the node has no update,
// or continues during a halt, because it is already changing to the revision, is rolling back, or is being removed.
func (s RolloutState) revisionToTry(instance *v1alpha1.WindowsInstance) string {
	update := instance.Status.Upgrade()
	if update == nil || instance.Status.IsRequested() || update.Step == v1alpha1.StepRollingBack ||
		instance.Purpose() == v1alpha1.ActivityRemove || slices.ContainsFunc(s.Nodes, func(n corev1.Node) bool {
		return n.Name == instance.Status.NodeName &&
			n.Annotations[contract.DesiredRevisionAnnotation] == update.Revision
	}) {
		return ""
	}
	return update.Revision
}

func (p Slot) why() string {
	return fmt.Sprintf("it was granted a slot in the rollout budget at %s", p.Since.UTC().Format(time.RFC3339))
}
