package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// settle is what is left of grants by a look. A place that is used shows in its instance, also when the
// list does not have it. One that is not used may still be while its instance is as it was when the
// place was given out. A Machine's is kept until it is seen that the Machine goes.
func settle(grants []Grant, look Snapshot) (left []Grant) {
	stays, nodes := map[string]bool{}, map[string]string{}
	for _, set := range look.Fleet.Sets {
		for _, host := range set.Hosts {
			stays[host.Name], nodes[host.Name] = !host.Leaving, host.Node
		}
	}
	for _, i := range look.Instances {
		if place := i.Status.Disruption; place != nil {
			left = append(left, Grant{Name: string(i.UID), Node: i.Status.NodeName,
				Since: metav1.NewMicroTime(place.Since.Time), isUsed: true})
		}
		if strings.HasPrefix(i.Annotations[contract.PlaceAnnotation], contract.PlaceOfMachine) && stays[i.Name] {
			left = append(left, Grant{Name: MachineName(i.Name), Node: cmp.Or(i.Status.NodeName, nodes[i.Name]),
				Machine: i.Name, Since: metav1.NewMicroTime(look.Fleet.Now), isUsed: true})
		}
	}
	for _, one := range grants {
		i := look.instance(one)
		if i != nil && i.ResourceVersion == one.Version && (one.Machine == "" || stays[one.Machine]) &&
			indexOf(left, one.Name) < 0 {
			left = append(left, one)
		}
	}
	slices.SortFunc(left, func(a, b Grant) int { return strings.Compare(a.Name, b.Name) })
	return left
}

// MachineName is the name by which a place is asked for to delete a Machine.
func MachineName(machine string) string { return "Machine " + machine }

// instance finds whose place one is, or whose Machine's; nil when it is gone.
func (s Snapshot) instance(one Grant) *v1alpha1.WindowsInstance {
	if one.Machine != "" {
		return s.Instances[one.Machine]
	}
	for _, i := range s.Instances {
		if string(i.UID) == one.Name {
			return i
		}
	}
	return nil
}

func indexOf(grants []Grant, name string) int {
	return slices.IndexFunc(grants, func(one Grant) bool { return one.Name == name })
}

// pending says in words that the instance or the Machine of who asks by a name has a place with which it has
// not begun; empty when there is none. It gets no other.
func pending(name, node string, grants []Grant) string {
	for _, one := range grants {
		if one.Name != name && node != "" && one.Node == node && !one.isInFleet() {
			who := "its instance"
			if one.Machine != "" {
				who = "Machine " + one.Machine
			}
			return fmt.Sprintf("a place was given out for node %s (%s) at %s, which is not used yet", node, who,
				one.at())
		}
	}
	return ""
}

// with has a look show that places were given out, for who is decided about next. What was decided
// before goes on seeing it as it was. Places that are used show in the statuses of instances.
func (s Snapshot) with(grants ...Grant) Snapshot {
	for _, one := range grants {
		if !one.isInFleet() {
			s.Fleet = s.Fleet.WithDisrupted(one.Node, "a place was given out for it at "+one.at()).
				WithDeleted(one.Machine)
		}
	}
	return s
}

// decision is what is decided about everybody who asks.
type decision struct {
	granted, refused []*queued
	// called are waiters for whom a place is held.
	called []waiter
	// grants is the list as it is to be; isChanged says that it is another than before. Places among
	// it of those who may not use them any more are revoked.
	grants    []Grant
	isChanged bool
	revoked   []Grant
}

// decide decides about all who ask in their order, by a look and the list. Whoever waits in front of
// one who asks has a place held for it; so have others while there is room.
func decide(all []*queued, waiting []waiter, grants []Grant, fleet Snapshot) decision {
	d := decision{grants: slices.Clone(grants)}
	look := fleet.with(grants...)
	hold := func(w waiter) bool {
		if indexOf(grants, w.name) >= 0 || pending(w.name, w.node, grants) != "" {
			return true // its place shows in the look already, and it gets no other
		}
		allowed := look.MayDisrupt(w.node).Allowed
		if allowed {
			look.Fleet, d.called = look.Fleet.WithDisrupted(w.node, "it is its turn"), append(d.called, w)
		}
		return allowed
	}
	slices.SortStableFunc(all, func(a, b *queued) int { return a.Order.Compare(b.Order) })
	for _, one := range all {
		for len(waiting) > 0 && waiting[0].order.Compare(one.Order) < 0 {
			hold(waiting[0])
			waiting = waiting[1:]
		}
		if place := d.decidePlace(one, look, fleet); place != nil {
			look = look.with(*place)
		}
	}
	for len(waiting) > 0 && hold(waiting[0]) {
		waiting = waiting[1:]
	}
	return d
}

// decidePlace decides about one, and answers the place that it is given. Who has a place already, and did
// not come to use it, is decided about as if it had none: look shows it, and who waits.
func (d *decision) decidePlace(one *queued, look, fleet Snapshot) *Grant {
	own := indexOf(d.grants, one.Name)
	if own >= 0 {
		look = fleet.with(slices.Delete(slices.Clone(d.grants), own, own+1)...)
	}
	look.pending = pending(one.Name, one.Node, d.grants)
	switch allowed := one.Decide(look) && look.pending == ""; {
	case allowed && own >= 0:
		d.granted = append(d.granted, one)
	case allowed:
		place := Grant{Name: one.Name, Node: one.Node, Machine: one.Machine,
			Since: metav1.NewMicroTime(fleet.Fleet.Now)}
		if i := fleet.instance(place); i != nil {
			place.Version = i.ResourceVersion
		}
		d.granted, d.grants, d.isChanged = append(d.granted, one), append(d.grants, place), true
		return &place
	default:
		if d.refused = append(d.refused, one); own >= 0 && !d.grants[own].isUsed {
			d.revoked = append(d.revoked, d.grants[own])
		}
	}
	return nil
}
