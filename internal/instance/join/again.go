package join

import (
	"cmp"
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

// IsHalfway reports whether the host has replaced kubelet's and the daemon's keys, or is about to: then
// the attempt ends first, or the daemon could not report any more. One that failed is judged anew.
func IsHalfway(status *v1alpha1.WindowsInstanceStatus, session *journey.Session) bool {
	return session.HasReplacedKey() || len(status.BootstrapCredentials) > 0 && status.Failures == 0
}

// IsUntouched reports whether nobody has felt yet at a node that serves that its host is to be joined again: it is not
// cordoned for that, on its way to another revision, which its daemon may apply once it was told, or rebooting.
func IsUntouched(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) bool {
	update := status.Upgrade()
	return status.RebootTime == nil && node.Annotations[contract.CordonedAnnotation] == "" &&
		(!update.Begun() || IsOverSSH(update) && update.SwitchTime == nil)
}

// IsOverSSH reports whether a host is being taken to another revision over SSH; nil is none.
func IsOverSSH(update *v1alpha1.Activity) bool {
	return update != nil && update.OverSSH && update.Step == v1alpha1.StepSwitching
}

// ResetForRejoin ends what a host is on the way to that is to be joined again. It comes back at the revision
// that it held, and a revision that it was leaving stays left.
func ResetForRejoin(status *v1alpha1.WindowsInstanceStatus) {
	status.Phase = v1alpha1.PhasePending
	if update := status.Upgrade(); update.Begun() && update.From != "" {
		status.DesiredRevision = update.From
	}
	if activity := status.Activity; !isToVerify(activity) && (activity == nil ||
		activity.Step != v1alpha1.StepRollingBack) {
		status.Activity = nil
	}
}

// isToVerify reports whether a reboot was requested of a host whose next boot id still has to show whether it rebooted:
// its daemon did not respond, or its node did not come back.
func isToVerify(activity *v1alpha1.Activity) bool {
	return activity != nil && activity.BootID != "" && !activity.Begun()
}

// rejoinFailed reports whether a host was joined again at the revision that it held, and did not become Ready in the
// time of a verification, or failed at what is done with that revision.
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

// PauseRejoin has a host in service whose node serves while its join waits for a place. One whose status
// says nothing of an earlier join is left alone meanwhile.
func (j *Join) PauseRejoin(status *v1alpha1.WindowsInstanceStatus) {
	status.Phase = v1alpha1.PhaseReady
	if status.JoinedTime == nil {
		status.Phase = v1alpha1.PhasePending
	}
	status.BootstrapCredentials = nil // nobody waits for what is requested with them
	awaitBoot(status.Activity, j.Now())
	j.RejoinAtHeld(status)
}

// IsTold reports whether the host was told the revision to which it goes over SSH.
func IsTold(status *v1alpha1.WindowsInstanceStatus) bool {
	return IsOverSSH(status.Upgrade()) && status.DesiredRevision == status.Activity.Revision
}

// Turn sends a host to the desired revision if it could not join at the revision that it held and its node serves no
// pods: the desired revision may be the cure. Turn does not try a revision again at which the host failed. If the host
// was not told its revision yet and another one is desired by now, Turn forgets the revision.
func (j *Join) Turn(ctx context.Context, instance *v1alpha1.WindowsInstance, desired blueprint.Desired) error {
	status := &instance.Status
	update, failure := status.Upgrade(), status.UpdateFailure
	switch {
	case IsOverSSH(update):
		if update.Revision != desired.Revision && !IsTold(status) {
			status.Activity = nil
		}
		return nil
	case status.JoinedTime == nil, status.DesiredRevision == desired.Revision,
		update != nil && update.Revision == desired.Revision, failure != nil && failure.Revision == desired.Revision:
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
		From: cmp.Or(status.HeldRevision, status.DesiredRevision), Drains: change.Drains, OverSSH: true,
		Step: v1alpha1.StepSwitching, Since: journey.Seconds(j.Now())}
	return nil
}

// RejoinAtHeld has a host without a place, which was being taken to another revision over SSH, come back at
// the one that it held. It goes to the other one like any node, once it is Ready.
func (j *Join) RejoinAtHeld(status *v1alpha1.WindowsInstanceStatus) {
	switch update := status.Upgrade(); {
	case !IsOverSSH(update):
	case update.SwitchTime != nil: // its daemon was told, and may have done it since
		update.OverSSH = false
	default:
		update.Step, update.Since = v1alpha1.StepWaiting, journey.Seconds(j.Now())
	}
}

// RevertToHeld notes a revision that a host failed at over SSH, and turns it back to the one that it held.
// What lies with the host, the network or the cluster is no revision's failure.
func (j *Join) RevertToHeld(ctx context.Context, instance *v1alpha1.WindowsInstance,
	problem *contract.Problem) []journey.Event {
	status := &instance.Status
	retryReboot(status) // the daemon may be well by now
	revision, held := status.DesiredRevision, status.HeldRevision
	switch update := status.Upgrade(); {
	case IsOverSSH(update):
		revision = update.Revision
	case problem.Reason == contract.ReasonDaemonUnresponsive:
		return nil // it was so before, at whatever revision
	}
	if !instance.DeletionTimestamp.IsZero() || status.JoinedTime == nil || held == "" || revision == held ||
		!policy.BlamesRevision(problem.Reason) {
		return nil
	}
	logf.FromContext(ctx).Info("rolling back", "revision", revision, "to", held, "reason", problem.Reason)
	// Whether its pods would feel the next try is not known of one that was joined for another
	// reason.
	now, tries, drains := journey.Seconds(j.Now()), int32(0), true
	if update := status.Upgrade(); update != nil {
		tries, drains = update.Tries, update.Drains
	}
	if node, err := j.Nodes.Ours(ctx, instance); err != nil || node != nil && policy.IsReady(node) ||
		!WasDown(status.Upgrade(), j.Observed.NotReady(node)) {
		status.UpdateFailure = &v1alpha1.UpdateFailure{Revision: revision, Code: problem.Reason.Code(),
			Message: problem.Detail, Time: now}
	}
	status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: revision, From: held, Drains: drains,
		OverSSH: true, Reason: string(problem.Reason), Message: problem.Detail, Step: v1alpha1.StepRollingBack,
		Since: now, Tries: tries}
	status.DesiredRevision = held
	return []journey.Event{journey.FailedEvent(v1alpha1.DisruptionUpdate, problem)}
}

// WasDown reports whether a node was down before its host was taken to another revision over SSH, or is gone. That it
// does not become Ready there either says nothing about the revision. down is since when it is not Ready.
func WasDown(update *v1alpha1.Activity, down policy.Since) bool {
	return IsOverSSH(update) && (down.IsZero() || down.Began.Before(update.Since.Time))
}

// bootReport is how long a daemon has to report its boot, which it does with the first thing that it writes.
const bootReport = time.Minute

// awaitBoot has a reboot that is to be told from the next boot id wait for that: a daemon that was just started has yet
// to say in which boot it runs.
func awaitBoot(activity *v1alpha1.Activity, now time.Time) {
	if isToVerify(activity) {
		activity.NextTime = new(journey.Seconds(now.Add(bootReport)))
	}
}

// retryReboot has a reboot tried again that the daemon did not do. Its host is not joined again for it.
func retryReboot(status *v1alpha1.WindowsInstanceStatus) {
	if reboot := status.Reboot(); reboot != nil {
		reboot.Reason, reboot.Message = "", ""
	}
}

// Finish notes that a host has joined. One that was brought back to the revision that it held waits
// for the next try of the other.
func (j *Join) Finish(status *v1alpha1.WindowsInstanceStatus, jitter float64) journey.Outcome {
	failed := status.Upgrade()
	status.Phase, status.Failures, status.NextAttemptTime = v1alpha1.PhaseReady, 0, nil
	journey.Hold(status, status.Revision)
	status.DesiredRevision = status.Revision
	retryReboot(status)
	awaitBoot(status.Activity, j.Now())
	now := journey.Seconds(j.Now())
	if status.JoinedTime == nil {
		status.JoinedTime = &now
	}
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
	failed.SwitchTime = nil // the next try begins again, in its time
	return journey.Wait(wait, contract.ReasonUpdateFailed, "host is back at revision %s, because at %s: %s",
		failed.From, failed.Revision, failed.Message)
}
