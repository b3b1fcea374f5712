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
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Facts are the inputs of the status.
type Facts struct {
	// Lacks are missing prerequisites, most important first.
	Lacks []*contract.Problem
	// Troubles are problems that don't keep other hosts from joining and don't concern a setting.
	Troubles  []*contract.Problem
	Instances []v1alpha1.WindowsInstance
	Rejected  []inventory.Rejected
	// DesiredRevision is empty if this process has published nothing. Then the revision in the status stays,
	// because nodes have it, and its salt is used again.
	DesiredRevision string
	// Refused are the settings that nodes don't get. Kubelet is the part of kubelet's configuration that is in
	// force, or nil. Known reports that this process has published something. Until then, the status keeps its
	// values for both. They belong to the generation Rendered.
	Refused    []*contract.Problem
	Kubelet    []byte
	Known      bool
	Rendered   int64
	Generation int64
	// Warning is a possible problem of the cluster's network, or nil.
	Warning *contract.Problem
	// Missing are the programs that nodes of this cluster need and the payload lacks, if that is known.
	Missing        []payload.Missing
	IsMissingKnown bool
	// Config holds the settings; it is nil while they are unknown. Now is the time.
	Config *v1alpha1.WindowsMachineConfig
	Now    time.Time
}

// Reasons of conditions that don't concern a single host. Users of OLM know reasonSafe and reasonNotSafe.
const (
	reasonAsExpected = "AsExpected"
	reasonSafe       = "upgradeIsSafe"
	reasonNotSafe    = "upgradeIsNotSafe"
	reasonHosts      = "HostsFailing"
	reasonEntries    = "EntriesRejected"
	reasonSettings   = "SettingsRejected"
	reasonFeatures   = "FeaturesOff"
)

// Limits of lists and messages in the status.
const (
	maxRejected       = 20
	maxMessage        = 1000
	maxNamedInMessage = 5
	// maxCondition is the longest message of a condition that the API server accepts, in bytes.
	maxCondition = 32768
)

// Assess writes the status. It returns how many nodes failed at the desired revision, because the status lists only
// some of them. Conditions that don't change keep their transition time.
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
	busy, lacks := underWay(f, status.Rollout.Phase == v1alpha1.RolloutHalted), blocking(f.Lacks)
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

// complete reports which features are off because the operator was built without a program.
func complete(status *v1alpha1.WindowsMachineConfigStatus, f Facts) {
	if !f.IsMissingKnown {
		return // the last condition stays
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

// accepted reports which settings are in force. It describes the rendered generation, because a later one may not
// be in force.
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
		words[i] = fmt.Sprintf("%v. %s", p, p.Reason.Fix())
	}
	set(status, f, v1alpha1.ConditionAvailable, false, "", string(f.Lacks[0].Reason), strings.Join(words, " "))
}

// states are the parts of an instance that the status uses. While an update waits or fails, the instance stays Ready.
type states struct {
	leaving, failing, ready, progressing, joined, paused bool
	progress                                             hostProgress
}

func state(i *v1alpha1.WindowsInstance) states {
	return states{
		leaving: !i.DeletionTimestamp.IsZero(), failing: i.Status.Failures > 0,
		joined: i.Status.JoinedTime != nil, paused: i.Spec.Paused,
		ready:       meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady),
		progressing: meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionProgressing),
		progress:    progress(i, i.Status.DesiredRevision),
	}
}

// count counts the instances by state, and returns the names of failing instances.
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

// bootTime is the maximum time until a new Machine answers, on the slowest platform. Until then, a host that can't
// be reached counts as joining.
const bootTime = 20 * time.Minute

// underWay returns the names of hosts that join, leave or are updated. A host is stuck if it is off, fails, is
// paused before its join, or waits because the rollout is halted or for hosts that are off. Stuck hosts don't
// count, because the next release may fix them.
func underWay(f Facts, halted bool) (names []string) {
	spent := isSpent(f)
	for i := range f.Instances {
		one := &f.Instances[i]
		s := state(one)
		var moves bool
		switch {
		case s.failing:
			moves = boots(one, f.Now)
		case s.leaving:
			moves = !spent || !waits(one)
		case s.joined || s.ready:
			moves = s.progressing && !isStuck(one, s, halted, f.Now) && (!spent || !s.ready || !waits(one))
		default: // a new host
			moves = !s.paused && !isCurable(f.Lacks)
		}
		if moves {
			names = append(names, one.Name)
		}
	}
	slices.Sort(names)
	return names
}

// isStuck reports whether a host that has joined makes no progress: it has not been Ready for long, its last try
// failed, or the rollout is halted.
func isStuck(i *v1alpha1.WindowsInstance, s states, halted bool, now time.Time) bool {
	switch {
	case !s.ready:
		return !isJustDown(i, now) || i.Status.Reason == string(contract.ReasonRolloutHalted)
	case i.Status.HasPlace():
		return false
	}
	return halted || i.Status.Upgrade() != nil && i.Status.Upgrade().Tries > 0
}

// isSpent reports whether hosts that have not been Ready for long use up the rollout budget: no other host gets a slot
// until these hosts are repaired.
func isSpent(f Facts) bool {
	fleet, down := policy.Fleet{}, false
	for i := range f.Instances {
		one := &f.Instances[i]
		s := state(one)
		if !s.joined || s.leaving {
			continue
		}
		member := policy.Member{Node: one.Name, Ready: true}
		if !s.ready && !isJustDown(one, f.Now) {
			member.Ready, member.Unavailable, down = false, "it is not Ready", true
		}
		fleet.Members = append(fleet.Members, member)
	}
	var budget *intstr.IntOrString
	if f.Config != nil {
		budget = f.Config.Spec.Rollout.MaxUnavailable
	}
	return down && !policy.MayDisruptAnytime("", fleet, budget).Allowed
}

// waits reports whether a node waits for a slot in the rollout budget: to be updated, rebooted, joined again or
// removed.
func waits(i *v1alpha1.WindowsInstance) bool {
	if i.Status.HasPlace() {
		return false
	}
	switch reason := contract.Reason(i.Status.Reason); {
	case !i.DeletionTimestamp.IsZero():
		return reason == contract.ReasonRemovalPending
	case reason == contract.ReasonDaemonUnresponsive, reason == contract.ReasonBudgetExhausted:
		return true
	}
	return i.Status.Activity != nil && i.Status.Activity.Step == v1alpha1.StepWaiting
}

// isJustDown reports whether a host that has joined has only been not Ready for the time that a boot may take.
func isJustDown(i *v1alpha1.WindowsInstance, now time.Time) bool {
	ready := meta.FindStatusCondition(i.Status.Conditions, v1alpha1.ConditionReady)
	return ready == nil || ready.Status != metav1.ConditionTrue && now.Sub(ready.LastTransitionTime.Time) < bootTime
}

// boots reports whether a host that does not answer is a Machine in its first minutes.
func boots(i *v1alpha1.WindowsInstance, now time.Time) bool {
	return i.Status.JoinedTime == nil && i.DeletionTimestamp.IsZero() && i.Spec.Source != nil &&
		i.Spec.Source.Kind == v1alpha1.SourceMachine && now.Sub(i.CreationTimestamp.Time) < bootTime
}

// blocking returns the missing prerequisites that make an upgrade unsafe. It returns none if the upgrade may fix
// them.
func blocking(lacks []*contract.Problem) []*contract.Problem {
	if isCurable(lacks) {
		return nil
	}
	return lacks
}

// isCurable reports whether no host can join with this release, but may join with the next one: this release does not
// support the cluster, or can't publish the services.
func isCurable(lacks []*contract.Problem) bool {
	return slices.ContainsFunc(lacks, func(p *contract.Problem) bool {
		return p.Reason == contract.ReasonVersionUnsupported || p.Reason == contract.ReasonRevisionNotPublished
	})
}

func upgradeMessage(busy []string, lacks []*contract.Problem) string {
	switch {
	case len(busy) > 0:
		return fmt.Sprintf("%s joining, leaving or being upgraded: %s",
			contract.CountAre(len(busy), "host"), some(busy))
	case len(lacks) > 0:
		return "a prerequisite is missing: " + lacks[0].Error()
	}
	return "no host is joining, leaving or being upgraded"
}

func degradedMessage(failing []string, f Facts, settings int) string {
	var words []string
	if len(failing) > 0 {
		words = append(words, fmt.Sprintf("%s failing: %s (see kubectl get wininst)",
			contract.CountAre(len(failing), "host"), some(failing)))
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
		words = append(words, fmt.Sprintf("%v. %s", p, p.Reason.Fix()))
	}
	if len(words) == 0 {
		return "no host fails"
	}
	return strings.Join(words, "; ")
}

func some(names []string) string {
	if len(names) > maxNamedInMessage {
		return strings.Join(names[:maxNamedInMessage], ", ") + ", …"
	}
	return strings.Join(names, ", ")
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
