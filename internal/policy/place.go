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

// Place is a place in the rollout budget that was given out.
type Place struct {
	// Name of its holder: the UID of an instance, or MachineName.
	Name string `json:"name"`
	// Node that is disrupted; empty when there is none.
	Node string `json:"node,omitempty"`
	// Machine that is replaced; empty for an instance.
	Machine string `json:"machine,omitempty"`
	// RequestTime is that of the instance's request, which it answers.
	RequestTime metav1.MicroTime `json:"requestTime,omitzero"`
	// Since is when it was given out.
	Since metav1.Time `json:"since"`
	// IsUsed says that its instance is about to write into its status that it has the place. Until it does, the place
	// is decided about again only when the instance asks again.
	IsUsed bool `json:"isUsed,omitempty"`
}

// answers reports whether the place is the one that an instance requests, or has.
func (p Place) answers(instance *v1alpha1.WindowsInstance) bool {
	wanted := instance.Status.Disruption
	return p.Name == string(instance.UID) && wanted != nil && wanted.RequestTime.Time.Equal(p.RequestTime.Time)
}

// PlaceOf is the place of an instance; nil while it has none, or none that it requests.
func PlaceOf(places []Place, instance *v1alpha1.WindowsInstance) *Place {
	for i := range places {
		if instance != nil && places[i].answers(instance) {
			return &places[i]
		}
	}
	return nil
}

// MachineName is the name under which a Machine holds a place until it is deleted.
func MachineName(machine string) string { return "Machine " + machine }

// isHolder reports whether a holder of this name is on the list.
func isHolder(places []Place, name string) bool {
	return slices.ContainsFunc(places, func(p Place) bool { return p.Name == name })
}

// RolloutState is what the list of places follows from, as it was read at one moment.
type RolloutState struct {
	Nodes     []corev1.Node
	Instances []v1alpha1.WindowsInstance
	Sets      []Set
	// NotReady is since when each Node is not Ready, by its name.
	NotReady map[string]Since
	Config   *v1alpha1.WindowsMachineConfig
	// Machines are those that should make room for others. IsKnown is false while nobody has looked for them; then
	// Machines keep their places.
	Machines []ReplaceCandidate
	IsKnown  bool
	// Uses is the instance that is about to use its place; empty for none.
	Uses types.UID
	Now  time.Time
}

// RolloutDecision is who has a place, and what the others wait for.
type RolloutDecision struct {
	Places []Place
	// Verdicts are about instances that request a place, by UID.
	Verdicts map[string]Verdict
	// Machines are the decisions about Machines that should make room, by name.
	Machines map[string]ReplaceDecision
}

// Replaces reports whether a Machine is to be deleted.
func (d RolloutDecision) Replaces() bool {
	for _, decision := range d.Machines {
		if decision.Action == ActReplace {
			return true
		}
	}
	return false
}

// lateDeletion is how long a Machine keeps its place whatever else changes: its deletion may have been sent, and still
// arrive. An API server ends a request after a minute.
const lateDeletion = 2 * time.Minute

// DecidePlaces gives out the places of the rollout budget. If the status of an instance says that it has its place, it
// keeps it, whatever the list says: its node is disrupted already. A place that is not used yet is decided about again,
// as the fleet is now. The order of requests is: those that had a place before, nodes that are not Ready, those with
// the fewest failures, the oldest.
func DecidePlaces(places []Place, s RolloutState) RolloutDecision {
	d := RolloutDecision{Verdicts: map[string]Verdict{}, Machines: map[string]ReplaceDecision{}}
	d.Places = s.inUse(places)
	fleet, closed := s.fleet(d.Places), Closed(s.Config.Spec.Rollout, s.Now)
	for _, request := range s.requests(places) {
		if !s.allows(request, fleet, closed, &d) {
			continue
		}
		if request.Since.IsZero() || request.candidate != nil { // each try to delete a Machine has its time to arrive
			request.Since = metav1.NewTime(s.Now.Truncate(time.Second))
		}
		if n := slices.IndexFunc(d.Places, func(p Place) bool { return p.Name == request.Name }); n >= 0 {
			if request.candidate != nil {
				d.Places[n].Since = request.Since
			}
			continue
		}
		request.IsUsed = s.Uses != "" && request.Name == string(s.Uses)
		d.Places = append(d.Places, request.Place)
		fleet = s.fleet(d.Places)
	}
	slices.SortFunc(d.Places, func(a, b Place) int { return strings.Compare(a.Name, b.Name) })
	return d
}

// inUse are the places that are not decided about again: those that instances say that they have, and those of Machines
// that may be on their way out.
func (s RolloutState) inUse(places []Place) (all []Place) {
	for i := range s.Instances {
		one := &s.Instances[i]
		place := PlaceOf(places, one)
		if !one.Status.HasPlace() && (place == nil || !place.IsUsed || one.UID == s.Uses) {
			continue
		}
		if place == nil {
			place = &Place{IsUsed: true, Name: string(one.UID), Node: one.Status.NodeName,
				RequestTime: one.Status.Disruption.RequestTime, Since: *one.Status.Disruption.Since}
		}
		all = append(all, *place)
	}
	for _, place := range places {
		stays := slices.ContainsFunc(s.Sets, func(set Set) bool {
			return slices.ContainsFunc(set.Hosts, func(h SetHost) bool { return h.Name == place.Machine && !h.Leaving })
		})
		if stays && (!s.IsKnown || s.Now.Sub(place.Since.Time).Abs() < lateDeletion) {
			all = append(all, place)
		}
	}
	return all
}

// fleet is the fleet in which these places are taken.
func (s RolloutState) fleet(places []Place) Fleet {
	fleet := NewFleet(s.Nodes, s.Instances, s.Sets, s.NotReady, places...)
	fleet.Now, fleet.UnavailableAfter = s.Now, v1alpha1.DefaultUnavailableAfter
	if after := s.Config.Spec.Rollout.UnavailableAfter; after != nil {
		fleet.UnavailableAfter = after.Duration
	}
	return fleet
}

// request is a place that somebody wants.
type request struct {
	Place
	instance  *v1alpha1.WindowsInstance
	candidate *ReplaceCandidate
	// isDown says that nobody is served at the node.
	isDown   bool
	failures int32
	created  time.Time
}

// requests lists who wants a place, in their order.
func (s RolloutState) requests(places []Place) (all []request) {
	ready := map[string]bool{}
	for i := range s.Nodes {
		ready[s.Nodes[i].Name] = IsReady(&s.Nodes[i])
	}
	for i := range s.Instances {
		one := &s.Instances[i]
		status := &one.Status
		if status.Disruption == nil {
			continue
		}
		r := request{Place: Place{Name: string(one.UID), Node: status.NodeName,
			RequestTime: status.Disruption.RequestTime}, instance: one,
			isDown: !ready[status.NodeName], failures: status.Failures, created: one.CreationTimestamp.Time}
		if place := PlaceOf(places, one); place != nil {
			r.Place = *place
		}
		if status.Update != nil {
			r.failures += status.Update.Tries
		}
		if status.Reboot != nil {
			r.failures += status.Reboot.Tries
		}
		all = append(all, r)
	}
	for i := range s.Machines {
		one := &s.Machines[i]
		r := request{Place: Place{Name: MachineName(one.Name), Node: one.Node, Machine: one.Name}, candidate: one,
			isDown: one.Cause == CauseKeyRefused, created: one.CreatedAt}
		if n := slices.IndexFunc(places, func(p Place) bool { return p.Name == r.Name }); n >= 0 {
			r.Place = places[n]
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

// allows decides about one request, and notes what was decided.
func (s RolloutState) allows(r request, fleet Fleet, closed string, d *RolloutDecision) bool {
	rollout := s.Config.Spec.Rollout
	if r.candidate != nil {
		c := *r.candidate
		if isHolder(d.Places, r.Name) { // as if it had none
			fleet = s.fleet(slices.DeleteFunc(slices.Clone(d.Places), func(p Place) bool { return p.Name == r.Name }))
		}
		c.Due = fleet.Count(c.Set, func(host string) bool {
			return slices.ContainsFunc(s.Machines, func(m ReplaceCandidate) bool { return m.Name == host })
		})
		decision := DecideReplace(c, fleet, rollout.MaxUnavailable, closed)
		d.Machines[c.Name] = decision
		return decision.Action == ActReplace
	}
	status := &r.instance.Status
	verdict := Verdict{Allowed: true, Why: "it has a place already"}
	if !isHolder(d.Places, r.Name) {
		verdict = MayDisrupt(r.Node, fleet, rollout.MaxUnavailable, closed)
		// No window holds a removal, whose user has said when, nor a node whose daemon was told its revision.
		if isTold := status.Update != nil && status.Update.SwitchTime != nil; isTold &&
			status.Disruption.Purpose == v1alpha1.DisruptionUpdate ||
			status.Disruption.Purpose == v1alpha1.DisruptionRemove {
			verdict = MayDisruptAnytime(r.Node, fleet, rollout.MaxUnavailable)
		}
		if isHolder(d.Places, MachineName(r.instance.Name)) {
			verdict = Verdict{Why: "its Machine is about to be deleted"}
		}
		if verdict.Allowed {
			if halted := Halted(status.Disruption.Revision, s.Config, s.Instances); halted != "" {
				verdict = Verdict{Reason: contract.ReasonRolloutHalted, Why: halted}
			}
		}
	}
	d.Verdicts[r.Name] = verdict
	return verdict.Allowed
}

// why is what is said of a node that has the place.
func (p Place) why() string {
	return fmt.Sprintf("it was granted a place in the rollout budget at %s", p.Since.UTC().Format(time.RFC3339))
}
