package diagnosis

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Snapshot holds the state of a cluster's objects at one moment.
type Snapshot struct {
	Now       time.Time
	Instances []v1alpha1.WindowsInstance
	// InstancesUnread means that the WindowsInstances couldn't be read, so it is unknown whether there are any.
	InstancesUnread bool
	// Config is empty if there is no WindowsMachineConfig. Lease is the operator's lease. It is nil if the lease
	// couldn't be read. If the lease doesn't exist, its spec is empty.
	Config v1alpha1.WindowsMachineConfig
	Lease  *coordinationv1.Lease
	// Nodes are the Windows nodes.
	Nodes []corev1.Node
	// Unread says which objects couldn't be read, and why.
	Unread []string
}

// Status is the state of the fleet.
type Status struct {
	Operator Operator `json:"operator"`
	// Prerequisites are the conditions of the WindowsMachineConfig.
	Prerequisites    []metav1.Condition         `json:"prerequisites"`
	Instances        v1alpha1.InstanceCounts    `json:"instances"`
	NodesNotReady    int                        `json:"nodesNotReady"`
	Rollout          Rollout                    `json:"rollout"`
	Waiting          []Group                    `json:"waiting"`
	Hosts            []Host                     `json:"hosts"`
	RejectedEntries  []v1alpha1.RejectedEntry   `json:"rejectedEntries,omitempty"`
	RejectedSettings []v1alpha1.RejectedSetting `json:"rejectedSettings,omitempty"`
	Unread           []string                   `json:"unread,omitempty"`
}

// Operator is the state of the operator, according to the operator's lease.
type Operator struct {
	Holder  string       `json:"holder,omitempty"`
	Renewed *metav1.Time `json:"renewed,omitempty"`
	// Problem is the reason why no operator is running. It is empty if an operator is running, or if this is unknown.
	Problem string `json:"problem,omitempty"`
}

// Rollout is the progress of the desired revision's rollout, and the limits of the rollout.
type Rollout struct {
	v1alpha1.RolloutStatus `json:",inline"`
	// MaxUnavailable is the rollout budget: a number of nodes or a percentage.
	MaxUnavailable string `json:"maxUnavailable"`
	// Closed is why no maintenance window is open. It is empty if a window is open, or if there are no windows.
	Closed string `json:"closed,omitempty"`
	Slots  []Slot `json:"slots,omitempty"`
}

// Slot is a host's slot in the rollout budget.
type Slot struct {
	Node    string                `json:"node"`
	Purpose v1alpha1.ActivityKind `json:"purpose"`
	Step    v1alpha1.Step         `json:"step,omitempty"`
	Since   metav1.Time           `json:"since"`
}

// Group is a group of hosts that wait or fail for the same reason.
type Group struct {
	Code   string `json:"code,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Phase is the phase of the hosts, if they are in progress and Reason is empty.
	Phase   v1alpha1.Phase `json:"phase,omitempty"`
	Failing bool           `json:"failing,omitempty"`
	// Since is when the longest wait in the group began. Message is the message of the host that has waited longest.
	Since   metav1.Time `json:"since"`
	Message string      `json:"message,omitempty"`
	Fix     string      `json:"fix,omitempty"`
	Hosts   []string    `json:"hosts"`
}

// Host is the state of one WindowsInstance.
type Host struct {
	Name    string         `json:"name"`
	Address string         `json:"address"`
	Phase   v1alpha1.Phase `json:"phase"`
	Step    v1alpha1.Step  `json:"step,omitempty"`
	Code    string         `json:"code,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
	Fix     string         `json:"fix,omitempty"`
	Ready   bool           `json:"ready"`
	Failing bool           `json:"failing,omitempty"`
	Paused  bool           `json:"paused,omitempty"`
	// Since is when the condition Ready last changed. If a Ready host has a step, Since is when the step began. If the
	// host has no condition Ready, Since is when its instance was created.
	Since    metav1.Time `json:"since"`
	Revision string      `json:"revision,omitempty"`
	Desired  string      `json:"desired,omitempty"`
	Node     string      `json:"node,omitempty"`
	// NodeReady is the status of the condition Ready of the Node. It is Absent if the Node does not exist.
	NodeReady string `json:"nodeReady,omitempty"`
}

// Summarize returns the status of a snapshot.
func Summarize(s Snapshot) Status {
	status := Status{
		Operator: operator(s.Lease, s.Now), Unread: s.Unread,
		// Use empty lists, because nil would be null in JSON.
		Prerequisites:    append([]metav1.Condition{}, s.Config.Status.Conditions...),
		Hosts:            make([]Host, 0, len(s.Instances)),
		RejectedEntries:  s.Config.Status.RejectedEntries,
		RejectedSettings: s.Config.Status.RejectedSettings,
		Rollout: Rollout{RolloutStatus: s.Config.Status.Rollout, MaxUnavailable: "1",
			Closed: policy.Closed(s.Config.Spec.Rollout, s.Now)},
	}
	if budget := s.Config.Spec.Rollout.MaxUnavailable; budget != nil {
		status.Rollout.MaxUnavailable = budget.String()
	}
	ready := map[string]string{}
	for i := range s.Nodes {
		condition := nodeReady(&s.Nodes[i])
		ready[s.Nodes[i].Name] = string(condition.Status)
		if condition.Status != corev1.ConditionTrue {
			status.NodesNotReady++
		}
	}
	for i := range s.Instances {
		one := &s.Instances[i]
		host := HostOf(one)
		if host.Node != "" {
			host.NodeReady = cmp.Or(ready[host.Node], "Absent")
		}
		status.Hosts = append(status.Hosts, host)
		policy.Count(&status.Instances, one) // the counts in the WindowsMachineConfig may be outdated
		if one.Status.HasSlot() {
			status.Rollout.Slots = append(status.Rollout.Slots, Slot{cmp.Or(host.Node, host.Name), one.Purpose(),
				host.Step, *one.Status.Slot.Since})
		}
	}
	slices.SortFunc(status.Hosts, func(a, b Host) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(status.Rollout.Slots, func(a, b Slot) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	status.Waiting = groups(status.Hosts)
	return status
}

// Healthy reports whether nothing fails, nothing waits for a user, and all objects could be read. A payload that lacks
// optional programs is healthy, because some users don't need these programs.
func (s *Status) Healthy() bool {
	degraded := slices.ContainsFunc(s.Prerequisites, func(c metav1.Condition) bool {
		return isBad(c) && c.Type != v1alpha1.ConditionUpgradeable && c.Type != v1alpha1.ConditionPayloadComplete
	})
	return !degraded && s.Operator.Problem == "" && s.NodesNotReady == 0 && len(s.Unread) == 0 &&
		s.Instances.Ready == s.Instances.Total && s.Instances.Failing == 0
}

// isBad reports whether a condition of the WindowsMachineConfig reports a problem. Degraded is a problem if it is True.
// All other conditions are a problem if they are not True.
func isBad(c metav1.Condition) bool {
	return (c.Status == metav1.ConditionTrue) == (c.Type == v1alpha1.ConditionDegraded)
}

// HostOf returns the state of one WindowsInstance. It doesn't read the Node.
func HostOf(i *v1alpha1.WindowsInstance) Host {
	status := &i.Status
	host := Host{Name: i.Name, Address: i.Spec.Address, Phase: cmp.Or(status.Phase, v1alpha1.PhasePending),
		Failing: status.Failures > 0, Paused: i.Spec.Paused, Since: i.CreationTimestamp,
		Revision: status.Revision, Desired: status.DesiredRevision, Node: status.NodeName}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); c != nil {
		host.Ready, host.Since = c.Status == metav1.ConditionTrue, c.LastTransitionTime
	}
	if status.Activity != nil {
		host.Step = status.Activity.Step
		if host.Ready {
			host.Since = status.Activity.Since
		}
	}
	if reason := contract.Reason(status.Reason()); reason != "" && reason != contract.ReasonNodeReady {
		host.Code, host.Reason = reason.Code(), string(reason)
		host.Message, host.Fix = reason.Explained(status.Message())
	}
	return host
}

const (
	stateFailing, stateWaiting, stateReady = "Failing", "Waiting", "Ready"
)

// State returns the state of a host. Ready means that the host and its Node are Ready, and that nothing is left to do.
// Failing means that attempts failed. All other hosts are Waiting.
func (h *Host) State() string {
	switch {
	case h.Failing:
		return stateFailing
	case h.Ready && h.Reason == "" && h.NodeReady == string(metav1.ConditionTrue):
		return stateReady
	}
	return stateWaiting
}

// steps returns two numbers: the completed steps and all steps of a host's join, upgrade or reboot. Or it returns nil.
func steps(h Host) []int {
	all, done := []v1alpha1.Phase{v1alpha1.PhasePending, v1alpha1.PhaseConnecting, v1alpha1.PhasePreflight,
		v1alpha1.PhasePreparing, v1alpha1.PhaseDelivering, v1alpha1.PhaseBootstrapping, v1alpha1.PhaseAdopting,
		v1alpha1.PhaseHandingOver, v1alpha1.PhaseConfirming}, 0
	if h.Step != "" {
		in := []v1alpha1.Step{v1alpha1.StepStaging, v1alpha1.StepWaiting, v1alpha1.StepDraining,
			v1alpha1.StepSwitching, v1alpha1.StepVerifying}
		if done = slices.Index(in, h.Step); done < 0 { // the step is RollingBack
			done = slices.Index(in, v1alpha1.StepSwitching)
		}
		return []int{done, len(in)}
	}
	if done = slices.Index(all, h.Phase); done < 0 {
		return nil
	}
	return []int{done, len(all)}
}

// groups returns the hosts that wait or fail, grouped by the reason. Failing groups come first, then larger groups.
func groups(hosts []Host) []Group {
	type key struct {
		code, reason string
		phase        v1alpha1.Phase
	}
	byKey := map[key]*Group{}
	for _, h := range hosts {
		if h.Ready && h.Reason == "" {
			continue
		}
		k := key{code: h.Code, reason: h.Reason}
		if h.Reason == "" {
			k.phase = h.Phase
		}
		g := byKey[k]
		if g == nil {
			g = &Group{Code: k.code, Reason: k.reason, Phase: k.phase}
			byKey[k] = g
		}
		g.Failing = g.Failing || h.Failing
		if len(g.Hosts) == 0 || h.Since.Before(&g.Since) {
			g.Since, g.Message = h.Since, h.Message
			g.Fix = cmp.Or(h.Fix, contract.Reason(h.Reason).Fix())
		}
		g.Hosts = append(g.Hosts, h.Name)
	}
	all := make([]Group, 0, len(byKey))
	for _, g := range byKey {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b Group) int {
		if a.Failing != b.Failing {
			return map[bool]int{true: -1, false: 1}[a.Failing]
		}
		return cmp.Or(len(b.Hosts)-len(a.Hosts), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Phase, b.Phase))
	})
	return all
}

// operator returns the state of the operator. If its lease has expired or has no holder, no operator is running.
func operator(lease *coordinationv1.Lease, now time.Time) Operator {
	if lease == nil {
		return Operator{}
	}
	var o Operator
	if lease.Spec.HolderIdentity != nil {
		o.Holder = *lease.Spec.HolderIdentity
	}
	if lease.Spec.RenewTime != nil {
		o.Renewed = &metav1.Time{Time: lease.Spec.RenewTime.Time}
	}
	switch {
	case o.Holder == "" || o.Renewed == nil:
		o.Problem = fmt.Sprintf("no operator is running in namespace %s: the lease %s has no holder",
			lease.Namespace, contract.LeaderLease)
	case lease.Spec.LeaseDurationSeconds != nil &&
		now.Sub(o.Renewed.Time) > time.Duration(*lease.Spec.LeaseDurationSeconds)*time.Second:
		o.Problem = "no operator is running: " + o.Holder + " has not renewed the lease since " +
			o.Renewed.UTC().Format(time.RFC3339) + "; what follows was true then"
	}
	return o
}

// nodeReady returns the condition Ready of a Node. Without it, the result is a condition with the status Unknown.
func nodeReady(node *corev1.Node) corev1.NodeCondition {
	return *cmp.Or(policy.ReadyCondition(node), &corev1.NodeCondition{Type: corev1.NodeReady,
		Status: corev1.ConditionUnknown, LastTransitionTime: node.CreationTimestamp})
}
