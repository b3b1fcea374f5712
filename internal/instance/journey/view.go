package journey

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Place is a request for a slot in the rollout budget.
type Place struct {
	Purpose v1alpha1.DisruptionPurpose
	// Waits describes the waiting disruption, as a part of a sentence. Revision is the node's next revision, if its
	// rollout may be halted.
	Waits, Revision string
	// Last is why the last try failed, or nil.
	Last *contract.Problem
}

// Results of a disruption. If a disruption ends earlier, its result is the reason.
const (
	ResultVerified   = "Verified"   // the node is healthy at its revision, or has rebooted
	ResultRolledBack = "RolledBack" // it failed at its revision, and is healthy at the previous one
)

// Released is a released slot of the rollout budget.
type Released struct {
	Purpose v1alpha1.DisruptionPurpose
	Since   time.Time
	Result  string
}

// Seconds returns a time with the precision of the API server, so that it equals what is read later.
func Seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// Micros returns a more precise time with the precision of the API server.
func Micros(t time.Time) metav1.MicroTime { return metav1.NewMicroTime(t.Truncate(time.Microsecond)) }

// Hold records the revision that a node was verified at. If it differs from the one before, Hold forgets an earlier
// failure, except a failure at the node's previous revision.
func Hold(status *v1alpha1.WindowsInstanceStatus, revision string) {
	if failure := status.UpdateFailure; failure != nil && revision != status.HeldRevision &&
		failure.Revision != status.HeldRevision {
		status.UpdateFailure = nil
	}
	status.HeldRevision = revision
}

// Release releases the slot in the rollout budget.
func Release(status *v1alpha1.WindowsInstanceStatus, purpose v1alpha1.DisruptionPurpose, result string) *Released {
	var released *Released
	if status.HasPlace() {
		released = &Released{purpose, status.Disruption.Since.Time, result}
	}
	status.Phase, status.Disruption = v1alpha1.PhaseReady, nil
	return released
}
