package policy

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// FirstBoot is how long the first boot of a Machine's host may take: Windows Setup with its restarts,
// and user data, which may have to fetch the OpenSSH server from Windows Update.
const FirstBoot = 15 * time.Minute

// IsBooting reports whether a host that can't be reached is most likely still at its first boot.
func IsBooting(instance *v1alpha1.WindowsInstance, reason contract.Reason, now time.Time) bool {
	source, status := instance.Spec.Source, &instance.Status
	if source == nil || source.Kind != v1alpha1.SourceMachine || status.HostKey != "" || status.KeyTrial != nil &&
		status.KeyTrial.Refusals > 0 {
		return false
	}
	return slices.Contains([]contract.Reason{contract.ReasonUnreachable, contract.ReasonNotSSH,
		contract.ReasonConnectionLost}, reason) && now.Sub(instance.CreationTimestamp.Time) < FirstBoot
}

// ReplaceCause is why a Machine should make room for another one.
type ReplaceCause string

// Causes. A host that never answers is none: it may be slow, or behind a firewall, and who wants it
// replaced has a MachineHealthCheck.
const (
	// CauseKeyStale occurs when the host accepted an earlier key and refuses the present one: it was
	// made with the earlier.
	CauseKeyStale ReplaceCause = "KeyStale"
	// CauseKeyRefused occurs when the host never accepted a key and has refused the present one for
	// some time.
	CauseKeyRefused ReplaceCause = "KeyRefused"
)

const (
	// staleRefusals is how often a host that has accepted a key must refuse another: once more than
	// once, as a Machine is at stake.
	staleRefusals = 2
	// earlyRefusals is how often a host must that has never accepted a key. Its user data may still
	// be at work.
	earlyRefusals = 3
)

// WhyReplace reads in the status of a Machine's instance whether the Machine should make room for
// another one; empty means no. keyHash is that of the present key, and refusalTimeout how long a host
// that has never accepted a key may refuse it. after is when time alone makes it due.
func WhyReplace(instance *v1alpha1.WindowsInstance, keyHash string, now time.Time,
	refusalTimeout time.Duration) (cause ReplaceCause, after time.Duration) {
	status := &instance.Status
	trial := status.KeyTrial
	if trial == nil || trial.PublicKeyHash != keyHash || trial.RefusedSince == nil || status.PublicKeyHash == keyHash ||
		!instance.DeletionTimestamp.IsZero() {
		return "", 0
	}
	if status.PublicKeyHash != "" {
		if trial.Refusals >= staleRefusals {
			return CauseKeyStale, 0
		}
		return "", 0
	}
	if trial.Refusals < earlyRefusals {
		return "", 0
	}
	if after = refusalTimeout - now.Sub(trial.RefusedSince.Time); after > 0 {
		return "", after
	}
	return CauseKeyRefused, 0
}

// refusalAge is for how long a refusal is taken to be how the host is now: a Machine waits for its
// turn for days, and meanwhile somebody may have authorised the key.
const refusalAge = 30 * time.Second

// IsRefusalStale reports whether the host of an instance must be asked again before its Machine is
// deleted. A refusal that a clock wrote which was ahead is of a time that nobody knows.
func IsRefusalStale(instance *v1alpha1.WindowsInstance, now time.Time) bool {
	trial := instance.Status.KeyTrial
	return trial == nil || trial.LastRefusedTime == nil ||
		now.Sub(trial.LastRefusedTime.Time).Abs() > refusalAge
}

// ReplaceCandidate is a Machine that should make room, as it is now.
type ReplaceCandidate struct {
	Name  string
	Cause ReplaceCause
	// CreatedAt is when it was made: of several, the oldest goes first.
	CreatedAt time.Time
	// Node of its host; empty when it has none.
	Node string
	// Set is the UID of the set that makes another Machine; empty without one. Due counts the hosts
	// of the set, this one with them, that should make room and serve nobody.
	Set types.UID
	Due int
	// Paused and Ignored are what the user set; Leaving says that it goes already; ManagedBy names
	// the API that decides about it instead.
	Paused, Ignored, Leaving bool
	ManagedBy                string
	// Ineffective says that several others of its set were replaced and none of those that came instead
	// has accepted the key yet.
	Ineffective bool
	// Stale says that the host refused the key too long ago to go by it.
	Stale bool
	// Unready says that what Machines are made from does not hold the present key yet.
	Unready bool
}

// ReplaceAction is what to do with a Machine.
type ReplaceAction string

// Actions.
const (
	// ActReplace: it may go now.
	ActReplace ReplaceAction = "Replace"
	// ActAsk: it may go if its host still refuses the key, which must be asked.
	ActAsk ReplaceAction = "Ask"
	// ActWait: not now; it is asked again.
	ActWait ReplaceAction = "Wait"
	// ActNever: not unless somebody changes something about it.
	ActNever ReplaceAction = "Never"
	// ActNothing: there is nothing to do any more.
	ActNothing ReplaceAction = "Nothing"
)

// ReplaceDecision is an action with its reason.
type ReplaceDecision struct {
	Action  ReplaceAction
	Reason  contract.Reason
	Message string
}

// DecideReplace decides whether a Machine may be deleted so that its set makes another. It never
// may without a set, nor when too few hosts of the set would be left serving, nor beyond the
// rollout budget, which is the same as for updates. closed says in words why no node that serves
// may be disrupted now; empty when one may.
func DecideReplace(c ReplaceCandidate, fleet Fleet, maxUnavailable *intstr.IntOrString, closed string) ReplaceDecision {
	switch {
	case c.Cause == "" || c.Leaving:
		return ReplaceDecision{Action: ActNothing, Reason: contract.ReasonMachineLeaving,
			Message: "there is nothing to do any more"}
	case c.Ignored:
		return decision(ActNever, contract.ReasonMachineIgnored, "Machine %s has the label %s", c.Name,
			contract.IgnoreLabel)
	case c.ManagedBy != "":
		return decision(ActNever, contract.ReasonMachineManagedElsewhere, "Machine %s is managed by %s", c.Name,
			c.ManagedBy)
	}
	i := slices.IndexFunc(fleet.Sets, func(s Set) bool { return c.Set != "" && s.UID == c.Set })
	if i < 0 || fleet.Sets[i].Leaving {
		return decision(ActNever, contract.ReasonMachineUnowned,
			"Machine %s belongs to no MachineSet that would make another", c.Name)
	}
	set := fleet.Sets[i]
	switch {
	case c.Paused:
		return decision(ActWait, contract.ReasonPaused, "the instance of Machine %s is paused", c.Name)
	case c.Ineffective:
		return decision(ActWait, contract.ReasonReplacementIneffective,
			"Machines of %s were replaced, and none that came instead has accepted the key yet", set.Name)
	case set.UserData != "" && set.UserData != contract.UserDataSecret:
		return decision(ActNever, contract.ReasonUserDataStale, "%s makes Machines with the user data of Secret %s, "+
			"and whether that holds the present key is not known", set.Name, set.UserData)
	case c.Unready:
		return decision(ActWait, contract.ReasonUserDataStale, "the user data does not hold the present key yet")
	case machinesOf(set) > set.Replicas:
		return decision(ActWait, contract.ReasonOwnerDegraded, "%s has %s and should have %d, so it removes "+
			"some by itself", set.Name, contract.Count(int(machinesOf(set)), "Machine"), set.Replicas)
	}
	return c.withinBounds(set, fleet, maxUnavailable, closed)
}

// machinesOf counts a set's hosts that are not being deleted.
func machinesOf(set Set) (count int) {
	for _, host := range set.Hosts {
		if !host.Leaving {
			count++
		}
	}
	return count
}

// withinBounds looks at what would be lost. A host that serves is one less for its set, whose owner
// may want more than the budget does, and for the fleet. One that serves nobody is no loss; but
// while as many of its set as the budget allows are away for other causes, or others that were
// replaced before are not back, it would be one more at stake.
func (c ReplaceCandidate) withinBounds(set Set, fleet Fleet, maxUnavailable *intstr.IntOrString,
	closed string) ReplaceDecision {
	serving, cordoned, serves := 0, 0, false
	for _, m := range fleet.Members {
		switch {
		case m.Node == c.Node && c.Node != "":
			serves = !fleet.isOut(m) // whatever it is down for, its pods are well, and would go
		case m.Set != set.UID:
		case m.Unavailable == "":
			serving++
		case m.Cordoned:
			cordoned++
		}
	}
	least, err := leastServing(set, maxUnavailable)
	if err != nil {
		return decision(ActNever, contract.ReasonOwnerDegraded, "how many hosts of %s must serve is not understood: %v",
			set.Name, err)
	}
	if !serves {
		// the pods of a node that an administrator cordoned are well, and no others are at stake
		return c.healing(set, serving+cordoned, maxUnavailable)
	}
	if closed != "" {
		return decision(ActWait, contract.ReasonMaintenanceWindowClosed, "%s", closed)
	}
	if serving < least {
		return decision(ActWait, contract.ReasonOwnerDegraded, "without Machine %s, %d of %d hosts of %s would serve, "+
			"and at least %d must", c.Name, serving, set.Replicas, set.Name, least)
	}
	if verdict := withinBudget(c.Node, fleet, maxUnavailable); !verdict.Allowed {
		return decision(ActWait, contract.ReasonBudgetExhausted, "%s", verdict.Why)
	}
	return c.replace()
}

// healing decides about a host that serves nobody.
func (c ReplaceCandidate) healing(set Set, serving int, maxUnavailable *intstr.IntOrString) ReplaceDecision {
	limit, err := scaled(maxUnavailable, set.Replicas)
	if err != nil {
		return decision(ActNever, contract.ReasonOwnerDegraded, "maxUnavailable is not understood: %v", err)
	}
	if away := set.Replicas - serving - c.Due; away >= limit {
		return decision(ActWait, contract.ReasonOwnerDegraded, "%d of %d hosts of %s are away beside Machine %s, and "+
			"maxUnavailable is %d", away, set.Replicas, set.Name, c.Name, limit)
	}
	return c.replace()
}

func (c ReplaceCandidate) replace() ReplaceDecision {
	if c.Stale {
		return decision(ActAsk, contract.ReasonMachineReplaced,
			"the host of Machine %s is asked once more whether it accepts the private key", c.Name)
	}
	return decision(ActReplace, contract.ReasonMachineReplaced,
		"Machine %s does not accept the present private key (%s)", c.Name, c.Cause)
}

// leastServing is how many hosts of a set must serve: what the user said of the set, else what the
// budget leaves.
func leastServing(set Set, maxUnavailable *intstr.IntOrString) (int, error) {
	if set.Minimum != nil {
		return scaled(set.Minimum, set.Replicas)
	}
	unavailable, err := scaled(maxUnavailable, set.Replicas)
	return max(0, set.Replicas-unavailable), err
}

func decision(action ReplaceAction, reason contract.Reason, format string, args ...any) ReplaceDecision {
	return ReplaceDecision{Action: action, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
