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

// FirstBoot is how long the first boot of a Machine's host may take. Windows Setup restarts the host several times, and
// the user data may download the OpenSSH server from Windows Update.
const FirstBoot = 15 * time.Minute

// IsBooting reports whether a host that can't be reached is probably still in its first boot.
func IsBooting(instance *v1alpha1.WindowsInstance, reason contract.Reason, now time.Time) bool {
	source, status := instance.Spec.Source, &instance.Status
	if source == nil || source.Kind != v1alpha1.SourceMachine || status.HostKey != "" ||
		status.KeyRefusal != nil {
		return false
	}
	return slices.Contains([]contract.Reason{contract.ReasonUnreachable, contract.ReasonNotSSH,
		contract.ReasonConnectionLost}, reason) && now.Sub(instance.CreationTimestamp.Time) < FirstBoot
}

// ReplaceCause is why a Machine should be replaced.
type ReplaceCause string

// If the host of a Machine never answers, the operator doesn't replace the Machine: the host may be slow, or behind a
// firewall. A MachineHealthCheck can replace the Machine.
const (
	// CauseKeyStale occurs when the host accepted the key that it was created with, and refuses the current key.
	CauseKeyStale ReplaceCause = "KeyStale"
	// CauseKeyRefused occurs when the host never accepted a key, and has refused the current key for refusalTimeout.
	CauseKeyRefused ReplaceCause = "KeyRefused"
)

// WhyReplace returns why a Machine should be replaced, according to the status of its instance. It returns an empty
// cause if the Machine should stay. keyHash is the hash of the current key. A single refusal of the key is not enough.
// A host that has never accepted a key may refuse the key for refusalTimeout, because its user data may still run. If
// only refusalTimeout prevents the replacement, the result `after` is the remaining time.
func WhyReplace(instance *v1alpha1.WindowsInstance, keyHash string, now time.Time,
	refusalTimeout time.Duration) (cause ReplaceCause, after time.Duration) {
	status := &instance.Status
	refusal := status.KeyRefusal
	if refusal == nil || refusal.PublicKeyHash != keyHash || status.PublicKeyHash == keyHash ||
		!instance.DeletionTimestamp.IsZero() || !refusal.Time.After(refusal.Since.Time) {
		return "", 0
	}
	if status.PublicKeyHash != "" {
		return CauseKeyStale, 0
	}
	if after = refusalTimeout - now.Sub(refusal.Since.Time); after > 0 {
		return "", after
	}
	return CauseKeyRefused, 0
}

// refusalAge is how long a refusal counts. A Machine may wait for days before it is replaced, and an administrator may
// authorise the key in the meantime.
const refusalAge = 30 * time.Second

// IsRefusalStale reports whether the operator must try the key again on the host of an instance before it deletes the
// Machine. A refusal whose time lies in the future is stale as well: a clock that was ahead recorded it.
func IsRefusalStale(instance *v1alpha1.WindowsInstance, now time.Time) bool {
	refusal := instance.Status.KeyRefusal
	return refusal == nil || now.Sub(refusal.Time.Time).Abs() > refusalAge
}

// ReplaceCandidate is the current state of a Machine that should be replaced.
type ReplaceCandidate struct {
	Name  string
	Cause ReplaceCause
	// CreatedAt is when the Machine was created. The oldest Machine is replaced first.
	CreatedAt time.Time
	// Node is the name of the host's node, or empty if the host has no node.
	Node string
	// Set is the UID of the set that creates a replacement for the Machine, or empty if the Machine belongs to no set.
	// Due counts the hosts of the set that should be replaced and aren't in service, including this one.
	Set types.UID
	Due int
	// Paused and Ignored are set by the user. ManagedBy is another API that decides about the Machine, or empty.
	Paused, Ignored bool
	ManagedBy       string
	// Ineffective: several Machines of the set were replaced, but none of the new Machines has accepted the key yet.
	Ineffective bool
	// Stale: the host's last refusal of the key is too old to count.
	Stale bool
	// Unready: the user data of new Machines does not contain the current key yet.
	Unready bool
}

// ReplaceAction is what the operator does with a Machine that should be replaced.
type ReplaceAction string

const (
	// ActReplace means: delete the Machine now.
	ActReplace ReplaceAction = "Replace"
	// ActAsk means: try the key again on the Machine's host, to learn whether the host still refuses it.
	ActAsk ReplaceAction = "Ask"
	// ActWait means: wait until something changes.
	ActWait ReplaceAction = "Wait"
)

// ReplaceDecision is an action with its reason.
type ReplaceDecision struct {
	Action  ReplaceAction
	Reason  contract.Reason
	Message string
}

// DecideReplace decides whether a Machine may be deleted so that its set creates a replacement. The Machine must belong
// to a set, enough hosts of the set must stay in service, and the rollout budget, which also limits updates, must allow
// the deletion. The text `closed` is the reason why no node in service may be disrupted now, or empty.
func DecideReplace(c ReplaceCandidate, fleet Fleet, maxUnavailable *intstr.IntOrString, closed string) ReplaceDecision {
	switch {
	case c.Ignored:
		return wait(contract.ReasonMachineIgnored, "Machine %s has the label %s", c.Name, contract.IgnoreLabel)
	case c.ManagedBy != "":
		return wait(contract.ReasonMachineManagedElsewhere, "Machine %s is managed by %s", c.Name, c.ManagedBy)
	}
	i := slices.IndexFunc(fleet.Sets, func(s Set) bool { return c.Set != "" && s.UID == c.Set })
	if i < 0 || fleet.Sets[i].Leaving {
		return wait(contract.ReasonMachineUnowned, "Machine %s belongs to no MachineSet that would make another",
			c.Name)
	}
	set := fleet.Sets[i]
	machines := 0
	for _, host := range set.Hosts {
		if !host.Leaving {
			machines++
		}
	}
	switch {
	case c.Paused:
		return wait(contract.ReasonPaused, "the instance of Machine %s is paused", c.Name)
	case c.Ineffective:
		return wait(contract.ReasonReplacementIneffective,
			"Machines of %s were replaced, and none that came instead has accepted the key yet", set.Name)
	case set.UserData != "" && set.UserData != contract.UserDataSecret:
		return wait(contract.ReasonUserDataStale, "%s makes Machines with the user data of Secret %s, "+
			"and whether that holds the current key is not known", set.Name, set.UserData)
	case c.Unready:
		return wait(contract.ReasonUserDataStale, "the user data does not hold the current key yet")
	case machines > set.Replicas:
		return wait(contract.ReasonOwnerDegraded, "%s has %s and should have %d, so it removes some by itself",
			set.Name, contract.Count(machines, "Machine"), set.Replicas)
	}
	if refused := c.exceeds(set, fleet, maxUnavailable, closed); refused != nil {
		return *refused
	}
	if c.Stale {
		return ReplaceDecision{ActAsk, contract.ReasonMachineReplaced,
			fmt.Sprintf("the host of Machine %s is asked once more whether it accepts the private key", c.Name)}
	}
	return ReplaceDecision{ActReplace, contract.ReasonMachineReplaced,
		fmt.Sprintf("Machine %s does not accept the current private key (%s)", c.Name, c.Cause)}
}

// The method `exceeds` returns why the deletion would take too many hosts out of service, or nil if it would not. If
// the host is in service, the limits of its set and of the fleet apply. Otherwise, the deletion waits only if too many
// other hosts of the set are down or have not joined yet. Hosts that should be replaced don't count. The limit is the
// rollout budget, applied to the set.
func (c ReplaceCandidate) exceeds(set Set, fleet Fleet, maxUnavailable *intstr.IntOrString,
	closed string) *ReplaceDecision {
	serving, cordoned, serves := 0, 0, false
	for _, m := range fleet.Members {
		switch {
		case m.Node == c.Node && c.Node != "":
			serves = !fleet.isOut(m) // the node's pods still run, even if the member counts as down
		case m.Set != set.UID:
		case m.Unavailable == "":
			serving++
		case m.Cordoned:
			cordoned++ // its pods still run
		}
	}
	limit, err := scaled(maxUnavailable, set.Replicas)
	least := max(0, set.Replicas-limit)
	if set.Minimum != nil && err == nil {
		least, err = scaled(set.Minimum, set.Replicas)
	}
	var refused ReplaceDecision
	away, verdict := set.Replicas-serving-cordoned-c.Due, withinBudget(c.Node, fleet, maxUnavailable)
	switch {
	case err != nil:
		refused = wait(contract.ReasonOwnerDegraded, "how many hosts of %s must serve is not understood: %v", set.Name,
			err)
	case !serves && away >= limit:
		refused = wait(contract.ReasonOwnerDegraded, "%d of %d hosts of %s are unavailable besides Machine %s, and "+
			"maxUnavailable is %d", away, set.Replicas, set.Name, c.Name, limit)
	case !serves:
		return nil
	case closed != "":
		refused = wait(contract.ReasonMaintenanceWindowClosed, "%s", closed)
	case serving < least:
		refused = wait(contract.ReasonOwnerDegraded, "without Machine %s, %d of %d hosts of %s would serve, "+
			"and at least %d must", c.Name, serving, set.Replicas, set.Name, least)
	case !verdict.Allowed:
		refused = wait(contract.ReasonBudgetExhausted, "%s", verdict.Why)
	default:
		return nil
	}
	return &refused
}

func wait(reason contract.Reason, format string, args ...any) ReplaceDecision {
	return ReplaceDecision{Action: ActWait, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
