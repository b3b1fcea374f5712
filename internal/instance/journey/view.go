package journey

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Place is a request for a place in the rollout budget.
type Place struct {
	Purpose v1alpha1.DisruptionPurpose
	// Waits says in words what waits; Revision is where it goes, if that may be halted.
	Waits, Revision string
	// Last is what the last try came to; empty without one.
	Last *contract.Problem
}

// What a disruption came to, beside the reasons for which a node goes back into service earlier.
const (
	ResultVerified   = "Verified"   // the node is well at its revision, or has rebooted
	ResultRolledBack = "RolledBack" // it failed at its revision, and is well at the one before
)

// Released is a place in the rollout budget that was given back.
type Released struct {
	Purpose v1alpha1.DisruptionPurpose
	Since   time.Time
	Result  string
}

// Seconds is a time as the API server keeps it. Comparing with what was read must find no
// difference.
func Seconds(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

// Micros is a more precise time as the API server keeps it.
func Micros(t time.Time) metav1.MicroTime { return metav1.NewMicroTime(t.Truncate(time.Microsecond)) }

// Hold records the revision at which a node is verified. If it differs from the one before, Hold forgets an earlier
// failure, except a failure at the revision that the node comes from.
func Hold(status *v1alpha1.WindowsInstanceStatus, revision string) {
	if failure := status.UpdateFailure; failure != nil && revision != status.HeldRevision &&
		failure.Revision != status.HeldRevision {
		status.UpdateFailure = nil
	}
	status.HeldRevision = revision
}

// Release gives a place in the rollout budget back, and has the host in service.
func Release(status *v1alpha1.WindowsInstanceStatus, purpose v1alpha1.DisruptionPurpose, result string) *Released {
	var released *Released
	if status.HasPlace() {
		released = &Released{purpose, status.Disruption.Since.Time, result}
	}
	status.Phase, status.Disruption = v1alpha1.PhaseReady, nil
	return released
}
