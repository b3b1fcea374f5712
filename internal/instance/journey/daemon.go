package journey

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// DefaultDaemonTimeout is the time limit for a daemon's response, and for its progress with the payload. After that,
// the host joins again over SSH.
const DefaultDaemonTimeout = 5 * time.Minute

// silence is the key in observed.Log for daemons that do not respond.
const silence = "silence"

// longestQuiet is the maximum time between two checks for an expired certificate of a daemon.
const longestQuiet = 24 * time.Hour

// Daemons watches whether daemons respond to requests.
type Daemons struct{ options *Options }

// silentSince returns the time at which this operator first saw that a daemon does not respond although kubelet works.
// If the daemon responds, the result is zero.
func (d *Daemons) silentSince(instance *v1alpha1.WindowsInstance, node *corev1.Node) policy.Since {
	ready, _ := NodeReady(node)
	return d.options.Observed.While(instance, silence, ready && !IsBounded(&instance.Status) &&
		isAwaited(&instance.Status, node))
}

// IsSilent reports whether a daemon has not responded to a request yet.
func (d *Daemons) IsSilent(instance *v1alpha1.WindowsInstance, node *corev1.Node) bool {
	return !d.silentSince(instance, node).IsZero()
}

// Forget resets how long a daemon has not responded.
func (d *Daemons) Forget(instance *v1alpha1.WindowsInstance) {
	d.options.Observed.While(instance, silence, false)
}

// hasNotRebooted reports whether a host should have rebooted, and is still in the same boot.
func hasNotRebooted(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) bool {
	reboot := status.Reboot()
	return reboot != nil && !reboot.Begun() && reboot.Reason == string(contract.ReasonDaemonUnresponsive) &&
		reboot.BootID == node.Annotations[contract.BootIDAnnotation]
}

// isAwaited reports whether the daemon has neither applied the requested revision nor reported a reason.
func isAwaited(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) bool {
	requested := node.Annotations[contract.DesiredRevisionAnnotation]
	return requested == status.DesiredRevision && requested != node.Annotations[contract.RevisionAnnotation] &&
		!DoesNotHold(node)
}

// Unresponsive returns a problem if a node's daemon seems to be dead, or can't report, while kubelet works. Without a
// problem, `left` is the time until the next check, or 0 if no check is needed.
func (d *Daemons) Unresponsive(instance *v1alpha1.WindowsInstance, node *corev1.Node) (problem *contract.Problem,
	left time.Duration) {
	status, silent := &instance.Status, d.silentSince(instance, node)
	ready, _ := NodeReady(node)
	switch {
	case ready && HasStoppedDaemon(status):
		return contract.NewProblem(contract.ReasonDaemonUnresponsive,
			"kubelet of node %s is healthy, and its daemon was stopped for a join that has not ended", node.Name), 0
	case ready && hasNotRebooted(status, node):
		return contract.NewProblem(contract.ReasonDaemonUnresponsive,
			"kubelet of node %s is healthy, and its daemon has not rebooted the host", node.Name), 0
	case !ready || IsBounded(status):
		return nil, 0
	}
	daemon, now := policy.Daemon{RequestedSince: silent}, d.options.Now()
	if end, err := time.Parse(time.RFC3339, node.Annotations[contract.CertificateEndAnnotation]); err == nil {
		if daemon.CertificateEnd = end; !end.After(now) {
			daemon.CertificateEnded = d.options.Observed.Since(instance, "certificate", end)
		}
	}
	for _, p := range status.Phases {
		if p.Phase == v1alpha1.PhaseConfirming { // the phase after the handover
			daemon.JoinedTime = p.StartTime.Time
		}
	}
	why, left := policy.Unresponsive(daemon, d.options.DaemonTimeout, now)
	if why != "" {
		return contract.NewProblem(contract.ReasonDaemonUnresponsive,
			"kubelet of node %s is healthy, and its daemon is dead or can't report: %s", node.Name, why), 0
	}
	return nil, min(left, longestQuiet)
}

// IsUnderWay reports whether a node's disruption has begun: a drain, an upgrade, a reboot or a rollback.
func IsUnderWay(status *v1alpha1.WindowsInstanceStatus) bool {
	return IsUpdating(status) || IsRebooting(status)
}

// IsUpdating reports whether an upgrade has begun.
func IsUpdating(status *v1alpha1.WindowsInstanceStatus) bool {
	update := status.Upgrade()
	return update != nil && (update.Begun() || status.HasSlot())
}

// IsRebooting reports whether a reboot has begun.
func IsRebooting(status *v1alpha1.WindowsInstanceStatus) bool {
	reboot := status.Reboot()
	return reboot != nil && (reboot.Begun() || status.HasSlot())
}

// IsBounded reports whether the upgrade or the reboot of a node has a time limit. A rollback, and an upgrade without a
// previous revision, have none: if the node is not Ready, a join over SSH may repair it.
func IsBounded(status *v1alpha1.WindowsInstanceStatus) bool {
	return IsRebooting(status) || IsUpdating(status) && HasPrevious(status) &&
		status.Activity.Step != v1alpha1.StepRollingBack
}

// HasPrevious reports whether there is another revision that an upgrade can roll back to.
func HasPrevious(status *v1alpha1.WindowsInstanceStatus) bool {
	return status.HeldRevision != "" && status.HeldRevision != status.Activity.Revision
}

// ApplyStatus returns the daemon's report, as the end of a message.
func ApplyStatus(node *corev1.Node) string {
	if status := node.Annotations[contract.ApplyStatusAnnotation]; status != "" {
		return fmt.Sprintf(": %.300s", status)
	}
	return ""
}

// DoesNotHold reports whether a node, according to its daemon, is not in the state of the desired revision.
func DoesNotHold(node *corev1.Node) bool {
	status := node.Annotations[contract.ApplyStatusAnnotation]
	reason, _, _ := strings.Cut(status, ":")
	return status != "" && !contract.Reason(reason).IsBesideRevision()
}

// RebootRefused returns why Windows does not reboot a node's host, or nil if the daemon reports no such failure.
func RebootRefused(node *corev1.Node) *contract.Problem {
	reason, detail, _ := strings.Cut(node.Annotations[contract.ApplyStatusAnnotation], ": ")
	if reason != string(contract.ReasonRebootFailed) {
		return nil
	}
	return contract.NewProblem(contract.ReasonRebootFailed, "Windows does not reboot the host of node %s: %.300s",
		node.Name, detail)
}

// StagesItself reports whether a node's daemon fetches its payload itself. Only such a daemon reports its boot ID.
func StagesItself(node *corev1.Node) bool { return node.Annotations[contract.BootIDAnnotation] != "" }

// Follows returns the wait for a daemon that has not applied a revision yet.
func Follows(node *corev1.Node, revision string) Outcome {
	return Wait(0, contract.ReasonRevisionPending, "node %s has revision %.100q and should have %q%s", node.Name,
		node.Annotations[contract.RevisionAnnotation], revision, ApplyStatus(node))
}

// Unanswered returns a problem if a daemon does not respond after the handover. The next attempt may find out why.
func (d *Daemons) Unanswered(instance *v1alpha1.WindowsInstance, node *corev1.Node) *contract.Problem {
	if ready, _ := NodeReady(node); !ready || DoesNotHold(node) {
		return nil
	}
	daemon := policy.Daemon{RequestedSince: d.options.PhaseSince(instance, v1alpha1.PhaseConfirming)}
	if why, _ := policy.Unresponsive(daemon, d.options.DaemonTimeout, d.options.Now()); why != "" {
		return contract.NewProblem(contract.ReasonDaemonUnresponsive,
			"the daemon of node %s was started over SSH, and %s", node.Name, why)
	}
	return nil
}
