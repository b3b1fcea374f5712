package rollout

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// isUnused says that nobody can begin to use the place any more that it was given.
func (one Grant) isUnused(now time.Time) bool { return now.Sub(one.Since.Time).Abs() > grantTimeout }

// settle is what is left of grants by what a look shows. A place is kept while the status of its
// instance says that it is used, and until it may be seen there; a Machine's until it is seen that
// the Machine goes. Places of which only a status tells are added.
func settle(grants []Grant, look Look, returned map[string]time.Time) (left []Grant) {
	uses, stays := map[string]bool{}, map[string]bool{}
	for _, i := range look.Instances {
		uses[string(i.UID)] = i.Status.Disruption != nil
	}
	for _, set := range look.Fleet.Sets {
		for _, host := range set.Hosts {
			stays[host.Name] = !host.Leaving
		}
	}
	for _, one := range grants {
		isReturned := !one.Since.After(returned[one.Name])
		isKept := !isReturned && !one.isUnused(look.Fleet.Now) && (one.Machine == "" || stays[one.Machine])
		if one.isUsed = one.Machine == "" && uses[one.Name]; isKept || one.isUsed {
			left = append(left, one)
		}
	}
	for _, i := range look.Instances {
		isListed := slices.ContainsFunc(left, func(one Grant) bool { return one.Name == string(i.UID) })
		if place := i.Status.Disruption; place != nil && !isListed {
			left = append(left, Grant{Name: string(i.UID), Node: i.Status.NodeName,
				Since: metav1.NewMicroTime(place.Since.Time), isUsed: true})
		}
	}
	slices.SortFunc(left, func(a, b Grant) int { return strings.Compare(a.Name, b.Name) })
	return left
}

// isPending says that who asks, or whose Machine or instance, has a place that is not seen to be used.
// It gets no other until nobody can begin to use that one any more.
func isPending(q Question, grants []Grant) bool {
	return slices.ContainsFunc(grants, func(one Grant) bool {
		return one.Name == q.Name || q.Node != "" && one.Node == q.Node && !one.isUsed
	})
}

// with has a look show that places were given out, for who is decided about next. What was decided
// before goes on seeing it as it was. Places that are used show in the statuses of instances.
func (l Look) with(grants ...Grant) Look {
	l.Fleet = l.Fleet.Clone()
	for _, one := range grants {
		if !one.isUsed {
			l.Fleet.Disturb(one.Node)
			l.Fleet.Leave(one.Machine)
		}
	}
	return l
}

// decision is what is decided about everybody who asks.
type decision struct {
	granted, refused []*asked
	// called are waiters for whom a place is held.
	called []waiter
	// grants is the list as it is to be.
	grants []Grant
}

// decide decides about all who ask in their order, by a look and the list that it shows. Whoever waits
// in front of one who asks has a place held for it; so have others while there is room.
func decide(all []*asked, waiting []waiter, grants []Grant, look Look) decision {
	d := decision{grants: grants}
	hold := func(w waiter) bool {
		if isPending(Question{Name: w.name, Node: w.node}, grants) {
			return true // its place shows in the look already, and it gets no other
		}
		allowed := look.MayDisrupt(w.node).Allowed
		if allowed {
			look, d.called = look.with(Grant{Node: w.node}), append(d.called, w)
		}
		return allowed
	}
	slices.SortStableFunc(all, func(a, b *asked) int { return a.Order.Compare(b.Order) })
	for _, one := range all {
		for len(waiting) > 0 && waiting[0].order.Compare(one.Order) < 0 {
			hold(waiting[0])
			waiting = waiting[1:]
		}
		if !one.Decide(look) || isPending(one.Question, d.grants) {
			d.refused = append(d.refused, one)
			continue
		}
		place := Grant{Name: one.Name, Node: one.Node, Machine: one.Machine, Since: metav1.NewMicroTime(look.Fleet.Now)}
		d.grants, look, d.granted = append(d.grants, place), look.with(place), append(d.granted, one)
	}
	for len(waiting) > 0 && hold(waiting[0]) {
		waiting = waiting[1:]
	}
	return d
}
