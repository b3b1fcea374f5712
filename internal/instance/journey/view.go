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
	// Waits says what waits, as a part of a sentence. Revision is the revision that the node goes to, if its rollout
	// may be halted.
	Waits, Revision string
	// Last is why the last try failed; empty without one.
	Last *contract.Problem
}

// Results of a disruption. A disruption that ends earlier has the reason for that as its result.
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

// Release gives the place in the rollout budget back.
func Release(status *v1alpha1.WindowsInstanceStatus, purpose v1alpha1.DisruptionPurpose, result string) *Released {
	var released *Released
	if status.HasPlace() {
		released = &Released{purpose, status.Disruption.Since.Time, result}
	}
	status.Phase, status.Disruption = v1alpha1.PhaseReady, nil
	return released
}
