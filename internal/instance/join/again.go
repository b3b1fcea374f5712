package join

import (
	"context"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// OverSSH returns the upgrade that a join carries out, or nil if the join carries out no upgrade.
func OverSSH(status *v1alpha1.WindowsInstanceStatus) *v1alpha1.Activity {
	if update := status.Upgrade(); update != nil && update.Step == v1alpha1.StepSwitching {
		return update
	}
	return nil
}

// ResetForRejoin prepares the status for another join. If an upgrade or rollback had begun, the host joins at the last
// verified revision.
func ResetForRejoin(status *v1alpha1.WindowsInstanceStatus) {
	status.Phase = v1alpha1.PhasePending
	activity := status.Activity
	if status.Upgrade().Begun() && status.Joined() {
		status.DesiredRevision = status.HeldRevision
	}
	if activity != nil && activity.Step != v1alpha1.StepRollingBack && !isToVerify(activity) {
		status.Activity = nil
	}
}

// isToVerify reports whether a requested reboot must be verified with the host's next boot ID, because the daemon did
// not respond or the node did not come back.
func isToVerify(activity *v1alpha1.Activity) bool {
	return activity != nil && activity.BootID != "" && !activity.Begun()
}

// rejoinFailed reports whether a host failed to join at its last verified revision: the node did not become Ready
// within the verification timeout, or the join failed in a phase that depends on the revision.
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

// PauseRejoin ends a join that must wait for a slot or is no longer needed. An upgrade continues if its revision was
// already requested and the join has not stopped the daemon. Any other upgrade waits for its slot again.
func (j *Join) PauseRejoin(status *v1alpha1.WindowsInstanceStatus) {
	if update := OverSSH(status); update != nil && (!status.IsRequested() || len(status.BootstrapCredentials) > 0) {
		update.Step, update.Since = v1alpha1.StepWaiting, journey.Seconds(j.Now())
	}
	if status.Phase == v1alpha1.PhaseConfirming {
		status.BootstrapCredentials = nil // without credentials, the daemon counts as running
	}
	status.Phase = v1alpha1.PhaseReady
	if !status.Joined() {
		status.Phase = v1alpha1.PhasePending
	}
	awaitBoot(status.Activity, j.Now())
}

// Turn chooses the desired revision for a host that could not join at its last verified revision, because the desired
// revision may solve the problem. If the node is in service, or if the host already failed at the desired revision,
// Turn does nothing. If another revision is desired later, Turn drops its choice, unless the choice was already
// requested.
func (j *Join) Turn(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	status := &instance.Status
	desired, _, err := j.Desired.Current(ctx)
	switch update := status.Upgrade(); {
	case err != nil:
		return nil //nolint:nilerr // without a published revision, the host can only join at its own revision
	case OverSSH(status) != nil:
		if update.Revision != desired.Revision && !status.IsRequested() {
			status.Activity = nil
		}
		return nil
	case status.DesiredRevision == desired.Revision, update != nil && update.Revision == desired.Revision,
		status.FailedRevision == desired.Revision:
		return nil
	}
	if failed, err := j.rejoinFailed(ctx, instance); err != nil || !failed {
		return err
	}
	if _, serves, err := j.InService(ctx, instance); err != nil || serves {
		return err
	}
	status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: desired.Revision,
		Step: v1alpha1.StepSwitching, Since: journey.Seconds(j.Now())}
	return nil
}

// GiveUp ends an upgrade over SSH. The host joins at its last verified revision, and is upgraded normally once Ready.
func GiveUp(status *v1alpha1.WindowsInstanceStatus) {
	if status.IsRequested() {
		status.DesiredRevision = status.HeldRevision
	}
	status.Activity = nil
}

// RevertToHeld rolls back a host that failed to join at a revision: the host gets its last verified revision. It also
// records the failure, unless the node was down before the change. If the revision isn't the cause, it does nothing.
func (j *Join) RevertToHeld(ctx context.Context, instance *v1alpha1.WindowsInstance,
	problem *contract.Problem) []journey.Event {
	status := &instance.Status
	retryReboot(status) // the daemon may run again
	revision, held, update := journey.JoinRevision(status), status.HeldRevision, OverSSH(status)
	wasDead := update == nil && problem.Reason == contract.ReasonDaemonUnresponsive // dead before the join
	if !instance.DeletionTimestamp.IsZero() || held == "" || revision == held || wasDead ||
		!policy.BlamesRevision(problem.Reason) {
		return nil
	}
	logf.FromContext(ctx).Info("rolling back", "revision", revision, "to", held, "reason", problem.Reason)
	if node, err := j.Nodes.Ours(ctx, instance); err != nil || node != nil && policy.IsReady(node) ||
		!WasDown(update, j.Observed.NotReady(node)) {
		journey.FailedAt(status, revision, problem, j.Now())
	}
	tries := int32(0)
	if status.Upgrade() != nil {
		tries = status.Activity.Tries
	}
	status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: revision, Tries: tries,
		Reason: string(problem.Reason), Message: problem.Detail, Step: v1alpha1.StepRollingBack,
		Since: journey.Seconds(j.Now())}
	status.DesiredRevision = held
	return []journey.Event{journey.FailedEvent(v1alpha1.ActivityUpgrade, problem)}
}

// WasDown reports whether a node was down or missing before its host changed to another revision over SSH. In this
// case, if the node isn't Ready, the new revision is not the cause. update is the upgrade over SSH, or nil. `down` is
// the time when the node stopped being Ready.
func WasDown(update *v1alpha1.Activity, down policy.Since) bool {
	return update != nil && (down.IsZero() || down.Began.Before(update.Since.Time))
}

// bootReport is the time limit from a daemon's start to its first write, which reports the boot ID.
const bootReport = time.Minute

func awaitBoot(activity *v1alpha1.Activity, now time.Time) {
	if isToVerify(activity) {
		activity.NextTime = new(journey.Seconds(now.Add(bootReport)))
	}
}

// retryReboot clears why a reboot failed. If the reboot didn't happen, the operator then requests it again.
func retryReboot(status *v1alpha1.WindowsInstanceStatus) {
	if reboot := status.Reboot(); reboot != nil {
		reboot.Reason, reboot.Message = "", ""
	}
}

// Finish records that a host has joined. After a rollback, Finish plans the next try of the revision that failed.
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
	return journey.Wait(wait, contract.ReasonUpdateFailed, "host is back at revision %s, because at %s: %s",
		status.HeldRevision, failed.Revision, failed.Message)
}
