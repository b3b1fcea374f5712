package join

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// IsHalfway reports whether the host has replaced the keys of kubelet and the daemon, or is about to. If so, the join
// must be completed, because the daemon can't report before that. Exception: if the join has started the daemon, and
// the attempt failed because the node did not become Ready in time, IsHalfway returns false.
func IsHalfway(status *v1alpha1.WindowsInstanceStatus) bool {
	return journey.HasStoppedDaemon(status) || len(status.BootstrapCredentials) > 0 && status.Failures == 0
}

// IsUntouched reports whether a node in service was not disrupted by the join yet: the node is not cordoned, the host
// does not reboot, and the operator has requested no other revision from the daemon.
func IsUntouched(status *v1alpha1.WindowsInstanceStatus, session *journey.Session, node *corev1.Node) bool {
	update := status.Upgrade()
	return session.RebootTime.IsZero() && node.Annotations[contract.CordonedAnnotation] == "" &&
		(!update.Begun() || IsOverSSH(update) && update.SwitchTime == nil)
}

// IsOverSSH reports whether a host changes to another revision over SSH.
func IsOverSSH(update *v1alpha1.Activity) bool {
	return update != nil && update.OverSSH && update.Step == v1alpha1.StepSwitching
}

// ResetForRejoin prepares a host for another join. The host joins at the revision that it held, and does not return
// to a revision that it was leaving.
func ResetForRejoin(status *v1alpha1.WindowsInstanceStatus) {
	status.Phase = v1alpha1.PhasePending
	if update := status.Upgrade(); update.Begun() && status.HeldRevision != "" {
		status.DesiredRevision = status.HeldRevision
	}
	if activity := status.Activity; !isToVerify(activity) && (activity == nil ||
		activity.Step != v1alpha1.StepRollingBack) {
		status.Activity = nil
	}
}

// isToVerify reports whether only the next boot ID of a host will show whether a requested reboot happened, because
// the daemon did not respond or the node did not come back.
func isToVerify(activity *v1alpha1.Activity) bool {
	return activity != nil && activity.BootID != "" && !activity.Begun()
}

// rejoinFailed reports whether a host failed to join at the revision that it held: the node did not become Ready within
// the verification timeout, or the join failed in a phase that depends on the revision.
func (j *Join) rejoinFailed(ctx context.Context, instance *v1alpha1.WindowsInstance) (bool, error) {
	switch status := &instance.Status; status.Phase {
	case v1alpha1.PhaseBootstrapping, v1alpha1.PhaseAdopting, v1alpha1.PhaseHandingOver:
		return status.Failures > 0, nil
	case v1alpha1.PhaseConfirming:
		bounds, err := j.CurrentBounds(ctx)
		if err != nil {
			return false, err
		}
		confirms := j.PhaseSince(instance, v1alpha1.PhaseConfirming)
		return !confirms.IsZero() && j.Left(confirms, bounds.Verify) <= 0, nil
	}
	return false, nil
}

// PauseRejoin returns a host to service if its node serves pods while its join waits for a slot. A host without an
// earlier join stays Pending.
func (j *Join) PauseRejoin(status *v1alpha1.WindowsInstanceStatus) {
	if status.Phase == v1alpha1.PhaseConfirming {
		status.BootstrapCredentials = nil // shows that the daemon runs
	}
	status.Phase = v1alpha1.PhaseReady
	if !status.Joined() {
		status.Phase = v1alpha1.PhasePending
	}
	awaitBoot(status.Activity, j.Now())
	j.RejoinAtHeld(status)
}

// IsRequested reports whether the revision that the host gets over SSH was already requested from the host.
func IsRequested(status *v1alpha1.WindowsInstanceStatus) bool {
	return IsOverSSH(status.Upgrade()) && status.DesiredRevision == status.Activity.Revision
}

// Turn sends a host to the desired revision, because this revision may solve its problem. It does so if the host
// could not join at the revision that it held, and its node serves no pods. Turn skips a revision at which the host
// failed. If the revision was not requested from the host yet, and another revision is desired now, Turn forgets the
// old revision.
func (j *Join) Turn(ctx context.Context, instance *v1alpha1.WindowsInstance, desired blueprint.Desired) error {
	status := &instance.Status
	switch update := status.Upgrade(); {
	case IsOverSSH(update):
		if update.Revision != desired.Revision && !IsRequested(status) {
			status.Activity = nil
		}
		return nil
	case !status.Joined(), status.DesiredRevision == desired.Revision,
		update != nil && update.Revision == desired.Revision, status.FailedRevision == desired.Revision:
		return nil
	}
	if failed, err := j.rejoinFailed(ctx, instance); err != nil || !failed {
		return err
	}
	if _, serves, err := j.InService(ctx, instance); err != nil || serves {
		return err
	}
	change := j.Revisions.Compare(ctx, status.DesiredRevision, desired)
	status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: desired.Revision,
		Drains: change.Drains, OverSSH: true, Step: v1alpha1.StepSwitching, Since: journey.Seconds(j.Now())}
	return nil
}

// RejoinAtHeld lets a host without a slot join at the revision that it held. Once the host is Ready, it is upgraded
// like any other node.
func (j *Join) RejoinAtHeld(status *v1alpha1.WindowsInstanceStatus) {
	switch update := status.Upgrade(); {
	case !IsOverSSH(update):
	case update.SwitchTime != nil: // the daemon may have applied the revision since
		update.OverSSH = false
	default:
		update.Step, update.Since = v1alpha1.StepWaiting, journey.Seconds(j.Now())
	}
}

// RevertToHeld records that a host failed at a revision over SSH, and sends the host back to the revision that it
// held. If the cause is the host, the network or the cluster, RevertToHeld does nothing.
func (j *Join) RevertToHeld(ctx context.Context, instance *v1alpha1.WindowsInstance,
	problem *contract.Problem) []journey.Event {
	status := &instance.Status
	retryReboot(status) // the daemon may run again
	revision, held := status.DesiredRevision, status.HeldRevision
	switch update := status.Upgrade(); {
	case IsOverSSH(update):
		revision = update.Revision
	case problem.Reason == contract.ReasonDaemonUnresponsive:
		return nil // not the revision's fault: the daemon was dead before
	}
	if !instance.DeletionTimestamp.IsZero() || held == "" || revision == held ||
		!policy.BlamesRevision(problem.Reason) {
		return nil
	}
	logf.FromContext(ctx).Info("rolling back", "revision", revision, "to", held, "reason", problem.Reason)
	// If the host was joined for another reason, it is unknown whether the next try would disrupt pods.
	now, tries, drains := journey.Seconds(j.Now()), int32(0), true
	if update := status.Upgrade(); update != nil {
		tries, drains = update.Tries, update.Drains
	}
	if node, err := j.Nodes.Ours(ctx, instance); err != nil || node != nil && policy.IsReady(node) ||
		!WasDown(status.Upgrade(), j.Observed.NotReady(node)) {
		journey.FailedAt(status, revision, problem, j.Now())
	}
	status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: revision, Drains: drains,
		OverSSH: true, Reason: string(problem.Reason), Message: problem.Detail, Step: v1alpha1.StepRollingBack,
		Since: now, Tries: tries}
	status.DesiredRevision = held
	return []journey.Event{journey.FailedEvent(v1alpha1.ActivityUpgrade, problem)}
}

// WasDown reports whether a node was down, or missing, before its host changed to another revision over SSH. If such a
// node does not become Ready at the other revision either, the revision is not blamed. down is the time since when the
// node is not Ready.
func WasDown(update *v1alpha1.Activity, down policy.Since) bool {
	return IsOverSSH(update) && (down.IsZero() || down.Began.Before(update.Since.Time))
}

// bootReport is how long a daemon has to report its boot. It does so with its first write.
const bootReport = time.Minute

// awaitBoot delays the next try of a reboot, so that a daemon that has just been started can report its boot first.
func awaitBoot(activity *v1alpha1.Activity, now time.Time) {
	if isToVerify(activity) {
		activity.NextTime = new(journey.Seconds(now.Add(bootReport)))
	}
}

// retryReboot requests a reboot again if the daemon did not execute it, instead of joining the host again.
func retryReboot(status *v1alpha1.WindowsInstanceStatus) {
	if reboot := status.Reboot(); reboot != nil {
		reboot.Reason, reboot.Message = "", ""
	}
}

// Finish records that a host has joined. If the host was sent back to the revision that it held, it waits for its
// next try of the other revision.
func (j *Join) Finish(status *v1alpha1.WindowsInstanceStatus, jitter float64) journey.Outcome {
	failed := status.Upgrade()
	status.Phase, status.Failures = v1alpha1.PhaseReady, 0
	journey.Hold(status, status.Revision)
	status.DesiredRevision = status.Revision
	retryReboot(status)
	awaitBoot(status.Activity, j.Now())
	now := journey.Seconds(j.Now())
	if failed == nil {
		return journey.Done()
	}
	if failed.Step != v1alpha1.StepRollingBack {
		status.Activity = nil
		return journey.Done()
	}
	failed.Tries++
	wait := policy.DisruptBackoff(failed.Tries, jitter)
	next := journey.Seconds(j.Now().Add(wait))
	failed.Step, failed.Since, failed.NextTime = v1alpha1.StepWaiting, now, &next
	failed.SwitchTime = nil // the next try starts from the beginning
	return journey.Wait(wait, contract.ReasonUpdateFailed, "host is back at revision %s, because at %s: %s",
		status.HeldRevision, failed.Revision, failed.Message)
}
