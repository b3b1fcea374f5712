package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Verdict is a decision with its reason in words.
type Verdict struct {
	Allowed bool
	// Reason is that of a no; empty when it is the budget.
	Reason contract.Reason
	Why    string
	// Blocked is Why of a no by the budget, in words that stay while places go from node to node. Empty for any other.
	Blocked string
}

// Shown is why, for a status: hundreds may wait, and each change is a write.
func (v Verdict) Shown() string { return cmp.Or(v.Blocked, v.Why) }

// MayDisruptAnytime decides whether a node may be disrupted: updated, rebooted, removed. maxUnavailable is
// a number, or a percentage of the fleet, rounded up as disruption budgets do; nil means 1. A
// member of the fleet counts as unavailable for whatever cause: see Member.Unavailable. So does what a set
// lacks, because a host that was taken away is missing until another one serves in its place.
//
// A node whose pods are lost already costs nothing more, so it does not wait until others are back;
// but of such nodes, too, no more than maxUnavailable are worked on at once, since many that are
// not Ready at the same time may soon all be Ready again. Nodes that are only behind do not wait
// for each other: nobody would ever be first. One that somebody cordoned besides is waited for like any
// other that is cordoned.
func MayDisruptAnytime(node string, fleet Fleet, maxUnavailable *intstr.IntOrString) Verdict {
	i := slices.IndexFunc(fleet.Members, func(m Member) bool { return m.Node == node })
	switch {
	case i >= 0 && fleet.Members[i].Disrupted:
		return Verdict{Allowed: true, Why: "it has a place already: " + fleet.Members[i].Unavailable}
	case fleet.IsLost(node):
		return amongGranted(node, fleet, maxUnavailable)
	}
	return withinBudget(node, fleet, maxUnavailable)
}

// MayDisrupt is MayDisruptAnytime within maintenance windows: closed says in words why nothing may begin now, and
// is empty when it may. What has begun is brought to its end.
func MayDisrupt(node string, fleet Fleet, maxUnavailable *intstr.IntOrString, closed string) Verdict {
	verdict := MayDisruptAnytime(node, fleet, maxUnavailable)
	begun := slices.ContainsFunc(fleet.Members,
		func(m Member) bool { return m.Node == node && (m.Disrupted || m.Begun) })
	if verdict.Allowed && !begun && closed != "" {
		return Verdict{Reason: contract.ReasonMaintenanceWindowClosed, Why: closed}
	}
	return verdict
}

// amongGranted decides about a node whose pods are lost already: how many others were granted a place?
func amongGranted(node string, fleet Fleet, maxUnavailable *intstr.IntOrString) Verdict {
	total, _, _ := count(node, fleet)
	limit, err := scaled(maxUnavailable, total)
	if err != nil {
		return notUnderstood(maxUnavailable)
	}
	var others away
	for _, m := range fleet.Members {
		if m.Disrupted && m.Node != node && !fleet.isGivenUp(m) {
			others.add(m.Node+": "+m.Unavailable, m.hasPlace())
		}
	}
	return Verdict{Allowed: len(others.all) < limit, Blocked: blocked(limit, others.unplaced...),
		Why: fmt.Sprintf("%d of %d nodes were granted a place and maxUnavailable is %d%s", len(others.all),
			total, limit, some(others.all))}
}

func notUnderstood(maxUnavailable *intstr.IntOrString) Verdict {
	return Verdict{Why: fmt.Sprintf("maxUnavailable %q is neither a number nor a percentage", maxUnavailable.String())}
}

// withinBudget decides over all others than the node itself.
func withinBudget(node string, fleet Fleet, maxUnavailable *intstr.IntOrString) Verdict {
	total, down, who := count(node, fleet)
	limit, err := scaled(maxUnavailable, total)
	if err != nil {
		return notUnderstood(maxUnavailable)
	}
	return Verdict{
		Allowed: down < limit,
		Why: fmt.Sprintf("%d of %d nodes are unavailable and maxUnavailable is %d%s", down, total, limit,
			some(who.all)),
		Blocked: blocked(limit, who.unplaced...),
	}
}

// blocked says what the budget is, and who is in the way without a place, which somebody may have to act upon.
func blocked(limit int, unplaced ...string) string {
	return fmt.Sprintf("no more nodes may be unavailable, as maxUnavailable is %d%s", limit, some(unplaced))
}

// away names who is unavailable: all, and those of them that have no place.
type away struct{ all, unplaced []string }

func (a *away) add(who string, hasPlace bool) {
	if a.all = append(a.all, who); !hasPlace {
		a.unplaced = append(a.unplaced, who)
	}
}

// count says how many hosts the fleet should have, and how many of them, the asking node aside, are
// unavailable or missing; who names them. A set that is being deleted makes no more. See
// isGivenUp for those that belong to it no more.
func count(node string, fleet Fleet) (total, down int, who away) {
	type tally struct{ members, down, serving int }
	isMember := map[string]bool{}
	isBehind := slices.ContainsFunc(fleet.Members, func(m Member) bool { return m.Node == node && m.Behind })
	bySet := map[types.UID]*tally{"": {}}
	for _, set := range fleet.Sets {
		bySet[set.UID] = &tally{}
	}
	for _, m := range fleet.Members {
		if m.Node != node && fleet.isGivenUp(m) {
			continue // what its set lacks without it shows below
		}
		t := bySet[m.Set]
		if t == nil {
			t = bySet[""] // its set is not known any more
		}
		t.members++
		isMember[m.Host] = true
		switch {
		case m.Node == node || m.Unavailable == "" || m.Behind && !m.Cordoned && isBehind || m.isGone():
			t.serving++
		default:
			t.down++
			who.add(m.Node+": "+m.Unavailable, m.hasPlace())
		}
	}
	total, down = bySet[""].members, bySet[""].down
	for _, set := range fleet.Sets {
		t := bySet[set.UID]
		if set.Leaving {
			set.Replicas = 0
		}
		for _, host := range set.Hosts { // a host that can never join is not missing
			if host.Refused && !host.Leaving && !isMember[host.Name] {
				set.Replicas--
			}
		}
		total += max(t.members, set.Replicas)
		down += max(t.down, set.Replicas-t.serving)
		if missing := set.Replicas - t.members; missing > 0 {
			who.add(fmt.Sprintf("%s: %d of %d have no node", set.Name, missing, set.Replicas), false)
		}
	}
	return total, down, who
}

// isGone says of a member that is to leave and has no place that nobody waits for it: it is down, or its
// removal has begun, and could not be brought to its end. Whoever removes a host has counted it out,
// however long that takes.
func (m Member) isGone() bool { return m.Leaving && !m.Disrupted && (!m.Ready || m.Removing) }

func (m Member) hasPlace() bool { return m.Disrupted && !m.Unplaced }

// scaled is a number, or a percentage of total rounded up; nil is 1.
func scaled(value *intstr.IntOrString, total int) (int, error) {
	if value == nil {
		return 1, nil
	}
	if percent, err := intstr.GetScaledValueFromIntOrPercent(value, 100, true); err != nil || percent < 0 ||
		value.Type == intstr.String && percent > 100 {
		return 0, fmt.Errorf("%q is neither a number nor a percentage from 0%% to 100%%", value.String())
	}
	return intstr.GetScaledValueFromIntOrPercent(value, total, true)
}

// some names the first few of those who are unavailable.
func some(who []string) string {
	const few = 3
	if len(who) == 0 {
		return ""
	}
	slices.Sort(who)
	more := ""
	if len(who) > few {
		more = fmt.Sprintf(", and %d more", len(who)-few)
	}
	return " (" + strings.Join(who[:min(few, len(who))], ", ") + more + ")"
}
