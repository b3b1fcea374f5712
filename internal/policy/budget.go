package policy

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Verdict is a decision with its reason.
type Verdict struct {
	Allowed bool
	// Reason is the reason of a refusal, for conditions. It is empty if the budget is exhausted.
	Reason contract.Reason
	Why    string
	// Blocked describes the same refusal as Why, in words that don't change when other nodes get or release slots. It
	// is set only if the budget is exhausted.
	Blocked string
}

// Shown returns the reason of a refusal for a status. The text is stable, because hundreds of instances may wait and
// each change of the text is a write.
func (v Verdict) Shown() string { return cmp.Or(v.Blocked, v.Why) }

// MayDisruptAnytime decides whether a node may be disrupted: updated, rebooted or removed. maxUnavailable is a number
// of hosts or a percentage of the fleet, rounded up as in PodDisruptionBudgets. nil means 1. Every member with a text
// in Member.Unavailable counts as unavailable. The hosts that a MachineSet lacks count as well, because a deleted host
// is missing until its replacement is in service.
//
// If a node's pods are already lost, disrupting the node causes no further loss. So this node doesn't wait for other
// nodes to recover. Still, at most maxUnavailable such nodes are disrupted at once: if many nodes stop being Ready at
// the same time, they may all be Ready again soon. Nodes that only lack the desired revision don't wait for each other,
// because otherwise no node could start to change. A node that someone else cordoned always counts.
func MayDisruptAnytime(node string, fleet Fleet, maxUnavailable *intstr.IntOrString) Verdict {
	i := slices.IndexFunc(fleet.Members, func(m Member) bool { return m.Node == node })
	switch {
	case i >= 0 && fleet.Members[i].Disrupted:
		return Verdict{Allowed: true, Why: "it has a slot already: " + fleet.Members[i].Unavailable}
	case fleet.IsLost(node):
		return amongGranted(node, fleet, maxUnavailable)
	}
	return withinBudget(node, fleet, maxUnavailable)
}

// MayDisrupt is like MayDisruptAnytime, but it also obeys maintenance windows. The text `closed` is the reason why no
// disruption may begin now, or empty. A disruption that has already begun may finish.
func MayDisrupt(node string, fleet Fleet, maxUnavailable *intstr.IntOrString, closed string) Verdict {
	verdict := MayDisruptAnytime(node, fleet, maxUnavailable)
	begun := slices.ContainsFunc(fleet.Members,
		func(m Member) bool { return m.Node == node && (m.Disrupted || m.Begun) })
	if verdict.Allowed && !begun && closed != "" {
		return Verdict{Reason: contract.ReasonMaintenanceWindowClosed, Why: closed}
	}
	return verdict
}

// amongGranted decides about a node whose pods are already lost. Only other disrupted nodes count against the budget.
func amongGranted(node string, fleet Fleet, maxUnavailable *intstr.IntOrString) Verdict {
	total, _, _ := count(node, fleet)
	limit, err := scaled(maxUnavailable, total)
	if err != nil {
		return notUnderstood(maxUnavailable)
	}
	var others away
	for _, m := range fleet.Members {
		if m.Disrupted && m.Node != node && !fleet.isGivenUp(m) {
			others.add(m.Node+": "+m.Unavailable, m.hasSlot())
		}
	}
	return Verdict{Allowed: len(others.all) < limit, Blocked: blocked(limit, others.withoutSlot...),
		Why: fmt.Sprintf("%d of %d nodes were granted a slot and maxUnavailable is %d%s", len(others.all),
			total, limit, some(others.all))}
}

func notUnderstood(maxUnavailable *intstr.IntOrString) Verdict {
	return Verdict{Why: fmt.Sprintf("maxUnavailable %q is neither a number nor a percentage", maxUnavailable.String())}
}

// withinBudget decides about a node whose pods run. All other unavailable nodes count against the budget.
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
		Blocked: blocked(limit, who.withoutSlot...),
	}
}

// `blocked` describes the budget and the unavailable nodes without a slot, which a user may have to repair.
func blocked(limit int, withoutSlot ...string) string {
	return fmt.Sprintf("no more nodes may be unavailable, as maxUnavailable is %d%s", limit, some(withoutSlot))
}

type away struct{ all, withoutSlot []string }

func (a *away) add(who string, hasSlot bool) {
	if a.all = append(a.all, who); !hasSlot {
		a.withoutSlot = append(a.withoutSlot, who)
	}
}

// count returns how many hosts the fleet should have (total), and how many of them are unavailable or missing (down).
// `down` doesn't include the given node. A MachineSet that is being deleted creates no more hosts.
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
			continue // counted below as missing from its MachineSet
		}
		t := bySet[m.Set]
		if t == nil {
			t = bySet[""] // its MachineSet is no longer known
		}
		t.members++
		isMember[m.Host] = true
		switch {
		case m.Node == node || m.Unavailable == "" || m.Behind && !m.Cordoned && isBehind || m.isGone():
			t.serving++
		default:
			t.down++
			who.add(m.Node+": "+m.Unavailable, m.hasSlot())
		}
	}
	total, down = bySet[""].members, bySet[""].down
	for _, set := range fleet.Sets {
		t := bySet[set.UID]
		if set.Leaving {
			set.Replicas = 0
		}
		for _, host := range set.Hosts { // a host that can never join isn't missing
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

// isGone reports whether a member leaves without a slot, and either its node is down or its removal has begun. A user
// who removes a host no longer expects it in service, no matter how long the removal takes.
func (m Member) isGone() bool { return m.Leaving && !m.Disrupted && (!m.Ready || m.Removing) }

func (m Member) hasSlot() bool { return m.Disrupted && !m.WithoutSlot }

// The function `scaled` converts a number, or a percentage of total, to a number, and rounds it up. nil means 1.
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

// The function `some` returns a text with the names of the first few unavailable members, or "" if there are none.
func some(who []string) string {
	const few = 3
	if len(who) == 0 {
		return ""
	}
	slices.Sort(who)
	return " (" + contract.Few(who, few, ", ") + ")"
}
