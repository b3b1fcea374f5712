package journey

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Results of a completed disruption. The result of any other disruption is the reason why it ended.
const (
	ResultVerified   = "Verified"   // the node is healthy at its revision, or has rebooted
	ResultRolledBack = "RolledBack" // the node failed, and is healthy at its previous revision
)

// Released describes a slot in the rollout budget that a host has just released.
type Released struct {
	Kind   v1alpha1.ActivityKind
	Since  time.Time
	Result string
}

// Seconds cuts a time to the precision of the API server, so that the time is equal when it is read again.
func Seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// Micros returns a time with the precision of the API server's MicroTime.
func Micros(t time.Time) metav1.MicroTime { return metav1.NewMicroTime(t.Truncate(time.Microsecond)) }

// Hold records the revision of a verified node. If this revision differs from the last verified one, Hold deletes the
// record of a failed revision. Exception: the record stays if the node failed at the last verified revision.
func Hold(status *v1alpha1.WindowsInstanceStatus, revision string) {
	if revision != status.HeldRevision && status.FailedRevision != status.HeldRevision {
		status.FailedRevision = ""
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionUpdateFailed)
	}
	status.HeldRevision = revision
}

// FailedAt records that a node failed at a revision, and is rolled back.
func FailedAt(status *v1alpha1.WindowsInstanceStatus, revision string, problem *contract.Problem, now time.Time) {
	status.FailedRevision = revision
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionUpdateFailed) // so that the time below is set
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: v1alpha1.ConditionUpdateFailed,
		Status: metav1.ConditionTrue, Reason: string(problem.Reason), Message: problem.Detail,
		LastTransitionTime: Seconds(now)})
}

// Release releases the slot in the rollout budget.
func Release(status *v1alpha1.WindowsInstanceStatus, kind v1alpha1.ActivityKind, result string) *Released {
	var released *Released
	if status.HasSlot() {
		released = &Released{kind, status.Slot.Since.Time, result}
	}
	status.Phase, status.Slot = v1alpha1.PhaseReady, nil
	return released
}
