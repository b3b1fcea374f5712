// Package health answers what a host that has joined needs, by its Node alone: nothing, an upgrade, or
// to be joined again. The instance controller asks it first. On the way it puts our marks on the Node back, and
// lifts the operator's cordon from a node that serves. It never contacts a host.
package health

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Health looks at a host that has joined.
type Health struct{ *journey.Parts }

// Finding is what a host that has joined needs.
type Finding struct {
	Node *corev1.Node
	// Rejoin says why the host must be joined again; nil when it need not.
	Rejoin *contract.Problem
	// Update says what another desired revision takes; nil when there is none.
	Update *journey.Update
	// Unresponsive says why the daemon is taken for dead that is to be told another revision; nil when it is not. Its
	// host is joined again at that one in its turn, if that ever comes.
	Unresponsive *contract.Problem
	// Outcome is how the node is: done, or what it waits for. Its time is no later than that at which a node that is
	// down, or a daemon that does not respond, has been so for too long: that holds whatever else is waited for.
	Outcome journey.Outcome
	// Updating and Rebooting say that the node has had its turn, and is under way.
	Updating, Rebooting bool
}

// Corrects says that a Check has a daemon go to another revision than it was told last. Which one that is must
// not be known from a cache that lags behind: the node may serve at it, or be on its way there.
func (h *Health) Corrects(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) bool {
	if journey.Foreign(node, instance) != nil {
		return false
	}
	h.noteRequested(ctx, &instance.Status, node)
	revision := toHave(&instance.Status)
	return revision != "" && revision != node.Annotations[contract.DesiredRevisionAnnotation]
}

// toHave is the revision that a daemon is told again where that is gone; empty while it is told by another
// step only: who is to be drained first is told by that step, who goes back takes the daemon's status of
// before away in the same write, and who has lost its place must have it back first.
func toHave(status *v1alpha1.WindowsInstanceStatus) string {
	if u := status.Upgrade(); u.Begun() && (u.Step != v1alpha1.StepVerifying ||
		!status.HasPlace()) {
		return ""
	}
	return status.DesiredRevision
}

// refusedRetry is when marks are tried again that the API server refused. A change of the instance is an event; one of
// a policy is none.
const refusedRetry = time.Minute

// Check looks at a host that has joined, through its Node only, nil when there is none, and puts our marks
// back where they are gone.
func (h *Health) Check(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) (Finding, error) {
	status := &instance.Status
	if node == nil {
		return Finding{Rejoin: contract.NewProblem(contract.ReasonNodePending, "node %s vanished", status.NodeName)},
			nil
	}
	if problem := journey.Foreign(node, instance); problem != nil {
		foreign := journey.Wait(0, problem.Reason, "%s", problem.Detail)
		return Finding{Node: node, Outcome: foreign}, nil //nolint:nilerr // the outcome says it
	}
	if status.PublicKeyHash == "" {
		// as an operator that kept it there only left it
		status.PublicKeyHash = node.Annotations[contract.PublicKeyHashAnnotation]
	}
	h.noteRequested(ctx, status, node)
	marks := journey.Marks{Instance: instance, KeyHash: status.PublicKeyHash, Revision: toHave(status),
		Bare: journey.IsUnderWay(status)}
	err := h.Nodes.Mark(ctx, node, marks)
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

// noteRequested finds out whether another revision was requested already, by an operator that ended before it wrote
// that down: one that the node is at, or the desired one, or one that was desired before it. None of them waits for a
// place.
func (h *Health) noteRequested(ctx context.Context, status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) {
	revision := node.Annotations[contract.DesiredRevisionAnnotation]
	if revision == status.DesiredRevision || status.Upgrade() != nil {
		return
	}
	if revision == node.Annotations[contract.RevisionAnnotation] && len(validation.IsDNS1123Subdomain(revision)) == 0 {
		status.DesiredRevision = revision // its daemon has it: to tell it another one takes a place
		return
	}
	requested, found, err := h.Revisions.Named(ctx, revision)
	if err == nil && found && !h.Revisions.Compare(ctx, status.DesiredRevision, requested).Waits() {
		status.DesiredRevision = revision
	}
}

// needs decides what a node needs that is ours.
func (h *Health) needs(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) (Finding, error) {
	status := &instance.Status
	fillHeldRevision(status, node)
	found := Finding{Node: node, Updating: journey.IsUpdating(status), Rebooting: journey.IsRebooting(status)}
	desired, _, err := h.Desired.Current(ctx)
	switch {
	case err != nil || journey.IsUnderWay(status): // nobody knows what is desired, or it is on its way
	case desired.Revision != status.DesiredRevision:
		found.Update = h.Revisions.Compare(ctx, status.DesiredRevision, desired)
		found.Update.From = cmp.Or(status.HeldRevision, status.DesiredRevision)
	case status.Upgrade() != nil:
		status.Activity = nil // another revision was desired meanwhile, and is not any more
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
		if !status.HasPlace() && journey.NodeReadyAt(node, status.DesiredRevision) {
			return h.uncordon(ctx, found) // it serves until it has its turn, whatever was begun with it before
		}
		return found, nil
	case journey.IsUnderWay(status):
		return found, nil
	case !ready: // which is why it does not follow, if it does not
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

// uncordon lifts our cordon from a node that serves. Where that is refused, this is what it waits for.
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

// backInService ends the phase of a node that lost its place to a pause, and goes elsewhere since.
func backInService(status *v1alpha1.WindowsInstanceStatus) {
	if status.Phase == v1alpha1.PhaseUpdating && !journey.IsUnderWay(status) {
		status.Phase = v1alpha1.PhaseReady
	}
}

// fillHeldRevision notes what a node that is well holds, where an operator of before did not.
func fillHeldRevision(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) {
	if status.HeldRevision == "" && !journey.IsUnderWay(status) && !journey.DoesNotHold(node) &&
		journey.NodeReadyAt(node, status.DesiredRevision) {
		status.HeldRevision = status.DesiredRevision
	}
}

// overdue says whether a node has not been Ready for too long, and otherwise how much time is left
// to it; none for a node that is Ready.
func (h *Health) overdue(node *corev1.Node) (overdue bool, left time.Duration) {
	since := h.Observed.NotReady(node)
	if since.IsZero() {
		return false, 0
	}
	left = since.Left(journey.RescueAfter, policy.Witnessed, h.Now())
	return left <= 0, max(0, left)
}

// Serving gives the host's Node while it is Ready at the revision that was last requested,
// whatever is under way for the host; nil otherwise.
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

// RecoversByItself says whether a host that has joined need not be joined again: its node serves, or
// is Ready and has a daemon that gets by itself what it lacks. A daemon that does not
// respond gets nothing.
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

// Skew says in words why a node's release and the desired one are too far apart; empty when they
// are not, or when nobody knows what is desired.
func (h *Health) Skew(ctx context.Context, instance *v1alpha1.WindowsInstance) string {
	desired, _, err := h.Desired.Current(ctx)
	if err != nil {
		return ""
	}
	return policy.CheckSkew(journey.ReleaseOf(desired.Revision), journey.ReleaseOf(instance.Status.Revision))
}

// Unresponsive gives the Node of a host that has joined, and why its daemon is taken for dead, or for one
// that can't report; nil while it is not.
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
