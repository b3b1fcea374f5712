package disrupt

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// switchDelay is the tolerated delay between the decision for a revision and the request to the daemon. After a longer
// delay, the time of the step begins with the request.
const switchDelay = time.Minute

// Resumed restarts the time of an upgrade after a user paused the host, because nothing checked the node meanwhile.
// Exception: the time of a rollback continues, because it only determines when a slow rollback is reported.
func Resumed(status *v1alpha1.WindowsInstanceStatus, at time.Time) {
	if update := status.Upgrade(); update.Begun() && update.Step != v1alpha1.StepRollingBack {
		update.Since = journey.Seconds(at)
	}
}

// aim begins an upgrade to the desired revision, or redirects the current upgrade to this revision.
func (d *Disrupt) aim(ctx context.Context, view *View) {
	status := &view.Instance.Status
	update, desired, change := status.Upgrade(), view.Desired, view.Change
	switch {
	case update == nil || change != nil && (desired == nil || update.Revision != desired.Revision):
	case desired != nil && update.Revision != desired.Revision: // without a rollback in between
		if update.Begun() {
			noteRequested(view)
		}
		logf.FromContext(ctx).Info("going on to a newer revision", "revision", desired.Revision, "instead",
			update.Revision)
		change = d.Revisions.Compare(ctx, update.Revision, *desired)
	default:
		return
	}
	status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: change.Revision,
		Step: v1alpha1.StepStaging, Since: journey.Seconds(d.Now())}
	if !change.Payload {
		status.Activity.Step = v1alpha1.StepWaiting
	}
}

// noteRequested sets the desired revision in the status to the last revision that the daemon was asked for. If the
// status contained another revision, Check would later write it to the Node, and disrupt the node without a slot.
func noteRequested(view *View) {
	status := &view.Instance.Status
	update, requested := status.Activity, requestedOf(view.Node)
	if requested != "" && (requested == update.Revision || requested == status.HeldRevision) {
		status.DesiredRevision = requested
	}
}

func requestedOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Annotations[contract.DesiredRevisionAnnotation]
}

func (d *Disrupt) applyAtOnce(ctx context.Context, view *View) (journey.Outcome, error) {
	status, revision := &view.Instance.Status, view.Change.Revision
	status.Activity = nil
	if err := d.Nodes.Request(ctx, view.Node,
		journey.NodeFields{Instance: view.Instance, Revision: revision, Bare: true}); err != nil {
		return journey.Outcome{}, err
	}
	status.DesiredRevision = revision
	outcome := journey.Follows(view.Node, revision)
	outcome.Quiet, outcome.IsRequested = journey.QuietPeriod, true
	return outcome, nil
}

func (d *Disrupt) returnFromBack(ctx context.Context, view *View) journey.Outcome {
	status := &view.Instance.Status
	return d.tryLater(ctx, view, journey.ResultRolledBack, contract.NewProblem(contract.ReasonUpdateFailed,
		"node %s is back at revision %s, because at %s: %s", view.Node.Name, status.HeldRevision,
		status.Activity.Revision, status.Activity.Message))
}

// finishUpgrade ends the upgrade of a node that is healthy at its revision. If a reboot is due, `ends` is false, and
// the node keeps its slot for the reboot, so that the node is drained only once. One write ends the upgrade and begins
// the reboot, so the slot is never free in between.
func (d *Disrupt) finishUpgrade(ctx context.Context, view *View) (outcome journey.Outcome, ends bool) {
	status, log := &view.Instance.Status, logf.FromContext(ctx)
	if !view.RebootDue {
		if outcome = d.Nodes.ReturnToService(ctx, view.Node); !outcome.IsDone() {
			return outcome, true
		}
	}
	revision, slot := status.Activity.Revision, status.Slot
	log.Info("node is at its new revision", "node", status.NodeName, "revision", revision)
	outcome = outcome.With(journey.DoneEvent(v1alpha1.ActivityUpgrade,
		fmt.Sprintf("node %s is at revision %s", status.NodeName, revision)))
	status.Revision = revision
	journey.Hold(status, revision)
	status.Activity, status.Failures = nil, 0
	outcome.Released = journey.Release(status, v1alpha1.ActivityUpgrade, journey.ResultVerified)
	if !view.RebootDue {
		return outcome, true
	}
	view.Note(ctx, outcome)
	status.Slot = slot
	d.ObserveReboot(view.Instance, view.Node, true, view.Jitter, view.Reboots)
	d.granted(ctx, view)
	log.Info("continuing a reboot", "node", view.Node.Name, "reason", WhyReboot(view.Node, true))
	view.Note(ctx, journey.Done().With(journey.StartedEvent(status)))
	return journey.Done(), false
}
