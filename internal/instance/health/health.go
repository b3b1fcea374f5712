// Package health decides from a Node what a joined host needs: nothing, an upgrade, or another join. The instance
// controller calls this package first. The package also restores missing marks of the operator on the Node, and removes
// the operator's cordon from a node in service. It never contacts a host.
package health

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Health decides what joined hosts need.
type Health struct{ *journey.Parts }

// Finding is what a joined host needs.
type Finding struct {
	Node *corev1.Node
	// Rejoin is why the host must join again, or nil.
	Rejoin *contract.Problem
	// Update is the update to the desired revision, or nil if the node already has that revision.
	Update *journey.Update
	// Unresponsive is why the daemon counts as dead. This field is set only if Update is set. When the host gets a
	// slot, it joins again at the desired revision.
	Unresponsive *contract.Problem
	// Outcome is the state of the node: done, or waiting. The wait ends at the latest when the node or the daemon has
	// been down for too long.
	Outcome journey.Outcome
	// Updating and Rebooting report that the upgrade or the reboot of the node has begun.
	Updating, Rebooting bool
}

// Corrects reports whether Check would change the desired revision in the Node's annotation. If so, call Check with a
// Node from the API server, because the node may already be changing to this revision.
func (h *Health) Corrects(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) bool {
	if journey.Foreign(node, instance) != nil {
		return false
	}
	h.noteRequested(ctx, &instance.Status, node)
	revision := toHave(&instance.Status)
	return revision != "" && revision != node.Annotations[contract.DesiredRevisionAnnotation]
}

// toHave returns the desired revision that Check must restore in a Node's annotation. After an upgrade has begun, the
// result is empty, because the upgrade sets the annotation. But it isn't empty while a node with a slot is verified.
func toHave(status *v1alpha1.WindowsInstanceStatus) string {
	if u := status.Upgrade(); u.Begun() && (u.Step != v1alpha1.StepVerifying ||
		!status.HasSlot()) {
		return ""
	}
	return status.DesiredRevision
}

// refusedRetry is the pause before Check retries a refused write of marks. A change of a policy sends no event.
const refusedRetry = time.Minute

// Check decides what a joined host needs, and restores missing marks of its Node. node is nil if there is no Node.
func (h *Health) Check(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) (Finding, error) {
	status := &instance.Status
	if node == nil {
		return Finding{Rejoin: contract.NewProblem(contract.ReasonNodePending, "node %s vanished", status.NodeName)},
			nil
	}
	if problem := journey.Foreign(node, instance); problem != nil {
		foreign := journey.Wait(0, problem.Reason, "%s", problem.Detail)
		return Finding{Node: node, Outcome: foreign}, nil //nolint:nilerr // the outcome contains the error
	}
	h.noteRequested(ctx, status, node)
	fields := journey.NodeFields{Instance: instance, KeyHash: status.PublicKeyHash, Revision: toHave(status),
		Bare: journey.IsUnderWay(status)}
	err := h.Nodes.SetFields(ctx, node, fields)
	if problem, refused := contract.AsProblem(err); refused {
		return Finding{Node: node, Outcome: journey.Wait(refusedRetry, problem.Reason, "%s", problem.Detail)}, nil
	}
	if err != nil {
		return Finding{}, err
	}
	status.NodeUID = string(node.UID)
	status.Revision = node.Annotations[contract.RevisionAnnotation]
	return h.needs(ctx, instance, node)
}

// noteRequested handles the case that the operator requested another revision, but ended before it updated the status.
// It adds the revision to the status if the node already has the revision, or if the update to it needs no slot.
func (h *Health) noteRequested(ctx context.Context, status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) {
	revision := node.Annotations[contract.DesiredRevisionAnnotation]
	if revision == status.DesiredRevision || status.Upgrade() != nil {
		return
	}
	if revision == node.Annotations[contract.RevisionAnnotation] && len(validation.IsDNS1123Subdomain(revision)) == 0 {
		status.DesiredRevision = revision // the daemon already has this revision
		return
	}
	requested, found, err := h.Revisions.Named(ctx, revision)
	if err == nil && found && !h.Revisions.Compare(ctx, status.DesiredRevision, requested).Waits() {
		status.DesiredRevision = revision
	}
}

func (h *Health) needs(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) (Finding, error) {
	status := &instance.Status
	found := Finding{Node: node, Updating: journey.IsUpdating(status), Rebooting: journey.IsRebooting(status)}
	desired, _, err := h.Desired.Current(ctx)
	switch {
	case err != nil || journey.IsUnderWay(status): // the desired revision is unknown, or the upgrade has begun
	case desired.Revision != status.DesiredRevision:
		found.Update = h.Revisions.Compare(ctx, status.DesiredRevision, desired)
	case status.Upgrade() != nil:
		status.Activity = nil // the desired revision changed, and then changed back
	}
	backInService(status)
	unresponsive, quiet := h.Daemons.Unresponsive(instance, node)
	switch {
	case unresponsive == nil || err != nil:
	case found.Update == nil:
		found.Rejoin = unresponsive
		return found, nil
	default:
		found.Unresponsive = unresponsive
	}
	ready, message := journey.NodeReady(node)
	overdue, left := h.overdue(node)
	again := max(left, quiet)
	found.Outcome.After = again
	if overdue && !journey.IsBounded(status) {
		found.Rejoin = contract.NewProblem(contract.ReasonNodeNotReady, "node %s has not been Ready for %s: %s",
			node.Name, journey.RescueAfter, message)
		return found, nil
	}
	switch {
	case found.Update != nil:
		found.Outcome = journey.Wait(again, contract.ReasonRevisionPending,
			"revision %s is desired and waits for the rollout budget",
			desired.Revision)
		if !status.HasSlot() && journey.NodeReadyAt(node, status.DesiredRevision) {
			return h.uncordon(ctx, found) // the node stays in service until its turn, even if a disruption has begun
		}
		return found, nil
	case journey.IsUnderWay(status):
		return found, nil
	case !ready: // report this first: it explains why the revision isn't applied
		found.Outcome = journey.Wait(again, contract.ReasonNodeNotReady, "node %s: %s", node.Name, message)
		return found, nil
	case status.Revision != status.DesiredRevision:
		found.Outcome = journey.Follows(node, status.DesiredRevision)
		found.Outcome.After = again
		return found, nil
	}
	if !journey.DoesNotHold(node) {
		journey.Hold(status, status.Revision)
	}
	return h.uncordon(ctx, found)
}

func (h *Health) uncordon(ctx context.Context, found Finding) (Finding, error) {
	err := h.Nodes.Uncordon(ctx, found.Node)
	if !journey.IsRefused(err) {
		return found, err
	}
	again := found.Outcome.After
	found.Update, found.Outcome = nil, journey.RetryWrite(err)
	if again > 0 {
		found.Outcome.After = min(again, found.Outcome.After)
	}
	return found, nil
}

// backInService ends the phase Updating if no upgrade is in progress, for example after a user paused the host.
func backInService(status *v1alpha1.WindowsInstanceStatus) {
	if status.Phase == v1alpha1.PhaseUpdating && !journey.IsUnderWay(status) {
		status.Phase = v1alpha1.PhaseReady
	}
}

func (h *Health) overdue(node *corev1.Node) (overdue bool, left time.Duration) {
	since := h.Observed.NotReady(node)
	if since.IsZero() {
		return false, 0
	}
	left = since.Left(journey.RescueAfter, policy.Witnessed, h.Now())
	return left <= 0, max(0, left)
}

// Serving returns the host's Node if the node is Ready at the last requested revision. Otherwise, it returns nil.
func (h *Health) Serving(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, error) {
	status := &instance.Status
	if !journey.HasJoined(status) {
		return nil, nil
	}
	node, err := h.Nodes.Get(ctx, status.NodeName)
	if err != nil || node == nil || journey.Foreign(node, instance) != nil {
		return nil, err
	}
	revision := node.Annotations[contract.DesiredRevisionAnnotation]
	if revision == "" || revision != status.DesiredRevision || !journey.NodeReadyAt(node, revision) {
		return nil, nil
	}
	return node, nil
}

// RecoversByItself reports whether a host needs no join: its node is in service, or the node is Ready and its daemon
// fetches the missing data itself.
func (h *Health) RecoversByItself(ctx context.Context, instance *v1alpha1.WindowsInstance) (bool, error) {
	if _, unresponsive, err := h.Unresponsive(ctx, instance); err != nil || unresponsive != nil {
		return false, err
	}
	serving, err := h.Serving(ctx, instance)
	if err != nil || serving != nil {
		return serving != nil, err
	}
	if !journey.HasJoined(&instance.Status) {
		return false, nil
	}
	node, err := h.Nodes.Ours(ctx, instance)
	if err != nil || node == nil {
		return false, err
	}
	ready, _ := journey.NodeReady(node)
	return ready && journey.StagesItself(node), nil
}

// Skew returns why a node can't be upgraded directly to the desired release, because the two releases are too far
// apart. Otherwise, or if the desired revision is unknown, it returns "".
func (h *Health) Skew(ctx context.Context, instance *v1alpha1.WindowsInstance) string {
	desired, _, err := h.Desired.Current(ctx)
	if err != nil {
		return ""
	}
	return policy.CheckSkew(journey.ReleaseOf(desired.Revision), journey.ReleaseOf(instance.Status.Revision))
}

// Unresponsive returns a joined host's Node and a problem if the daemon counts as dead or unable to report.
func (h *Health) Unresponsive(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, *contract.Problem,
	error) {
	if !journey.HasJoined(&instance.Status) {
		return nil, nil, nil
	}
	node, err := h.Nodes.Ours(ctx, instance)
	if err != nil || node == nil {
		return nil, nil, err
	}
	problem, _ := h.Daemons.Unresponsive(instance, node)
	if problem == nil {
		return nil, nil, nil
	}
	return node, problem, nil
}
