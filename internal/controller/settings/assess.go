package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Facts are the inputs of the status.
type Facts struct {
	// Lacks are the missing prerequisites. The most important one comes first.
	Lacks []*contract.Problem
	// Troubles are problems that don't prevent hosts from joining, and that don't concern a setting.
	Troubles  []*contract.Problem
	Instances []v1alpha1.WindowsInstance
	Rejected  []inventory.Rejected
	// DesiredRevision is the published revision, or empty while no revision can be published. In this case, the
	// revision in the status is kept: nodes have this revision, and the publisher uses its salt again.
	DesiredRevision string
	// Refused are the problems of settings that are not passed to nodes. Kubelet is the user's current part of
	// kubelet's configuration, or nil. Both come from the settings with the generation Rendered. If Known is false,
	// this process has published nothing yet, and the status keeps its old values.
	Refused    []*contract.Problem
	Kubelet    []byte
	Known      bool
	Rendered   int64
	Generation int64
	// Warning is a likely problem of the cluster's network, or nil.
	Warning *contract.Problem
	// Missing are programs that nodes of this cluster need and the payload lacks. The list is valid if IsMissingKnown.
	Missing        []payload.Missing
	IsMissingKnown bool
	// Config is the settings, or nil while they are unknown.
	Config *v1alpha1.WindowsMachineConfig
	Now    time.Time
}

// Reasons of conditions of the WindowsMachineConfig. Users of OLM may rely on reasonSafe and reasonNotSafe.
const (
	reasonAsExpected = "AsExpected"
	reasonSafe       = "upgradeIsSafe"
	reasonNotSafe    = "upgradeIsNotSafe"
	reasonHosts      = "HostsFailing"
	reasonEntries    = "EntriesRejected"
	reasonSettings   = "SettingsRejected"
	reasonFeatures   = "FeaturesOff"
)

// Maximum lengths of lists and messages in the status.
const (
	maxRejected       = 20
	maxMessage        = 1000
	maxNamedInMessage = 5
	// maxCondition is the API server's limit for the message of a condition, in bytes.
	maxCondition = 32768
)

// Assess writes the status. It returns how many nodes failed at the desired revision, because the status lists only
// some of them. If the status of a condition doesn't change, its transition time doesn't change either.
func Assess(status *v1alpha1.WindowsMachineConfigStatus, f Facts) (failed int) {
	status.ObservedGeneration = f.Generation
	status.DesiredRevision = cmp.Or(f.DesiredRevision, status.DesiredRevision)
	status.RejectedEntries = nil
	for _, r := range f.Rejected[:min(maxRejected, len(f.Rejected))] {
		status.RejectedEntries = append(status.RejectedEntries, v1alpha1.RejectedEntry{
			Key: r.Key, Code: r.Problem.Reason.Code(),
			Message: r.Problem.Detail + ". " + r.Problem.Reason.Fix(),
		})
	}
	accepted(status, f)
	complete(status, f)
	failed = rollout(status, f)
	if status.Rollout.Phase == v1alpha1.RolloutHalted {
		f.Troubles = append(slices.Clone(f.Troubles),
			contract.NewProblem(contract.ReasonRolloutHalted, "%s failed at revision %s",
				contract.Count(failed, "node"), status.Rollout.Revision))
	}
	failing := count(&status.Instances, f.Instances)
	busy, lacks := underWay(f), blocking(f.Lacks)
	available(status, f)
	set(status, f, v1alpha1.ConditionUpgradeable, len(busy) == 0 && len(lacks) == 0, reasonSafe,
		reasonNotSafe, upgradeMessage(busy, lacks))
	why := reasonHosts
	switch {
	case len(failing) == 0 && len(f.Rejected) > 0:
		why = reasonEntries
	case len(failing) == 0 && len(status.RejectedSettings) > 0:
		why = reasonSettings
	case len(failing) == 0 && len(f.Troubles) > 0:
		why = string(f.Troubles[0].Reason)
	}
	degraded := len(failing)+len(f.Rejected)+len(status.RejectedSettings)+len(f.Troubles) > 0
	set(status, f, v1alpha1.ConditionDegraded, degraded, why, reasonAsExpected,
		degradedMessage(failing, f, len(status.RejectedSettings)))
	return failed
}

func complete(status *v1alpha1.WindowsMachineConfigStatus, f Facts) {
	if !f.IsMissingKnown {
		return // keep the condition from before
	}
	message := "nodes have every feature"
	off := make([]string, 0, len(f.Missing))
	for _, m := range f.Missing {
		off = append(off, fmt.Sprintf("%s (%s is missing)", m.Feature, m.Name))
	}
	if len(off) > 0 {
		message = "off: " + strings.Join(off, ", ")
	}
	set(status, f, v1alpha1.ConditionPayloadComplete, len(off) == 0, reasonAsExpected, reasonFeatures, message)
}

// The function `accepted` sets the condition Accepted, which shows whether all settings are applied. The condition is
// about the generation that was rendered, because a later generation may not be applied yet.
func accepted(status *v1alpha1.WindowsMachineConfigStatus, f Facts) {
	if !f.Known {
		return
	}
	f.Generation = f.Rendered
	status.RejectedSettings, status.Kubelet.AcceptedConfig = nil, nil
	if len(f.Kubelet) > 0 {
		status.Kubelet.AcceptedConfig = &runtime.RawExtension{Raw: f.Kubelet}
	}
	words := make([]string, 0, len(f.Refused))
	for _, p := range f.Refused {
		words = append(words, p.Error())
		if len(status.RejectedSettings) < maxRejected {
			status.RejectedSettings = append(status.RejectedSettings, v1alpha1.RejectedSetting{
				Code: p.Reason.Code(), Message: p.Detail + ". " + p.Reason.Fix(),
			})
		}
	}
	if len(words) == 0 {
		set(status, f, v1alpha1.ConditionAccepted, true, reasonAsExpected, "",
			"nodes get everything that the settings say")
		return
	}
	message := strings.Join(words, "; ")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + "… (see status.rejectedSettings)"
	}
	set(status, f, v1alpha1.ConditionAccepted, false, "", string(f.Refused[0].Reason), message)
}

func available(status *v1alpha1.WindowsMachineConfigStatus, f Facts) {
	if len(f.Lacks) == 0 {
		set(status, f, v1alpha1.ConditionAvailable, true, reasonAsExpected, "",
			"nothing is missing that hosts need to join")
		return
	}
	words := make([]string, len(f.Lacks))
	for i, p := range f.Lacks {
		words[i] = p.Explain()
	}
	set(status, f, v1alpha1.ConditionAvailable, false, "", string(f.Lacks[0].Reason), strings.Join(words, " "))
}

// The function `shown` returns the parts of an instance that the status depends on. Ready is not enough: while an
// update waits or fails, the instance is still Ready.
func shown(i *v1alpha1.WindowsInstance) []any {
	s, step := &i.Status, v1alpha1.Step("")
	if s.Activity != nil {
		step = s.Activity.Step
	}
	return []any{i.DeletionTimestamp.IsZero(), i.Spec.Paused, s.Failures > 0, s.Joined(), step,
		s.Reason() == string(contract.ReasonRemovalPending), progress(i, s.DesiredRevision)}
}

// count counts the instances by state. `failing` are the names of the failing instances.
func count(counts *v1alpha1.InstanceCounts, instances []v1alpha1.WindowsInstance) (failing []string) {
	*counts = v1alpha1.InstanceCounts{}
	for _, i := range instances {
		policy.Count(counts, &i)
		if i.Status.Failures > 0 {
			failing = append(failing, i.Name)
		}
	}
	slices.Sort(failing)
	return failing
}

// bootTime is how long a new Machine may be unreachable, on the slowest platform. Until then, its host counts as
// joining.
const bootTime = 20 * time.Minute

// underWay returns the names of hosts that join, leave or are being changed, which an upgrade of the operator must not
// interrupt. It omits hosts without work in progress, because the next release may fix their problem: hosts that fail,
// hosts that wait for a slot, a maintenance window or the next try, and hosts that are paused before their join.
func underWay(f Facts) (names []string) {
	for i := range f.Instances {
		one, s := &f.Instances[i], &f.Instances[i].Status
		var moves bool
		switch {
		case s.Failures > 0:
			moves = boots(one, f.Now)
		case s.HasSlot():
			moves = true
		case !one.DeletionTimestamp.IsZero():
			moves = s.Reason() != string(contract.ReasonRemovalPending)
		case s.Joined():
			moves = s.Activity != nil && s.Activity.Step != v1alpha1.StepWaiting && s.Activity.Tries == 0
		default: // it has not joined yet
			moves = !one.Spec.Paused && !isCurable(f.Lacks)
		}
		if moves {
			names = append(names, one.Name)
		}
	}
	slices.Sort(names)
	return names
}

func boots(i *v1alpha1.WindowsInstance, now time.Time) bool {
	return !i.Status.Joined() && i.DeletionTimestamp.IsZero() && i.Spec.Source != nil &&
		i.Spec.Source.Kind == v1alpha1.SourceMachine && now.Sub(i.CreationTimestamp.Time) < bootTime
}

// The function `blocking` returns the missing prerequisites that make an upgrade of the operator unsafe. If the upgrade
// may provide them, blocking returns none.
func blocking(lacks []*contract.Problem) []*contract.Problem {
	if isCurable(lacks) {
		return nil
	}
	return lacks
}

// isCurable reports whether the next release of the operator may let hosts join. This is possible if this release does
// not support the cluster, or can't publish a revision.
func isCurable(lacks []*contract.Problem) bool {
	return slices.ContainsFunc(lacks, func(p *contract.Problem) bool {
		return p.Reason == contract.ReasonVersionUnsupported || p.Reason == contract.ReasonRevisionNotPublished
	})
}

func upgradeMessage(busy []string, lacks []*contract.Problem) string {
	switch {
	case len(busy) > 0:
		return fmt.Sprintf("%s joining, leaving or being upgraded: %s",
			contract.CountAre(len(busy), "host"), contract.Few(busy, maxNamedInMessage, ", "))
	case len(lacks) > 0:
		return "a prerequisite is missing: " + lacks[0].Error()
	}
	return "no host is joining, leaving or being upgraded"
}

func degradedMessage(failing []string, f Facts, settings int) string {
	var words []string
	if len(failing) > 0 {
		words = append(words, fmt.Sprintf("%s failing: %s (see kubectl get wininst)",
			contract.CountAre(len(failing), "host"), contract.Few(failing, maxNamedInMessage, ", ")))
	}
	if len(f.Rejected) > 0 {
		words = append(words, fmt.Sprintf("%s not valid in %s (see status.rejectedEntries)",
			contract.CountAre(len(f.Rejected), "entry"), contract.InstancesConfigMap))
	}
	if settings > 0 {
		words = append(words, fmt.Sprintf("%s not valid (see status.rejectedSettings)",
			contract.CountAre(settings, "setting")))
	}
	for _, p := range f.Troubles {
		words = append(words, p.Explain())
	}
	if len(words) == 0 {
		return "no host fails"
	}
	return strings.Join(words, "; ")
}

func set(status *v1alpha1.WindowsMachineConfigStatus, f Facts, kind string, state bool, whenTrue, whenFalse,
	message string) {
	if len(message) > maxCondition {
		message = strings.ToValidUTF8(message[:maxCondition], "")
	}
	condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: whenFalse, Message: message,
		ObservedGeneration: f.Generation}
	if state {
		condition.Status, condition.Reason = metav1.ConditionTrue, whenTrue
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}
