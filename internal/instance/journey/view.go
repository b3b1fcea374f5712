package journey

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// View is what was gathered of a node that is upgraded or rebooted. It
// lasts for one reconcile.
type View struct {
	// Instance is what is known of the host; a journey changes its status. Saved is the status as the
	// API server has it.
	Instance *v1alpha1.WindowsInstance
	Saved    *v1alpha1.WindowsInstanceStatus
	Node     *corev1.Node
	Bounds   Bounds
	// Desired is what is published; nil while nothing is. Change is what it takes to get there; nil
	// where it is not desired.
	Desired *blueprint.Desired
	Change  *Update
	// RebootDue says that the node goes on with a reboot when it has its revision.
	RebootDue bool
	// Drain is what the drain of this reconcile came to; IsRequested says that the revision was requested in it.
	Drain       *Outcome
	IsRequested bool
	// Jitter spreads tries, in [0,1).
	Jitter float64
}

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

// Progress is how far a node is with a purpose; nil when it is on no such journey.
func Progress(status *v1alpha1.WindowsInstanceStatus, purpose v1alpha1.DisruptionPurpose) *v1alpha1.Progress {
	switch {
	case purpose == v1alpha1.DisruptionUpdate && status.Update != nil:
		return &status.Update.Progress
	case purpose == v1alpha1.DisruptionReboot && status.Reboot != nil:
		return &status.Reboot.Progress
	}
	return nil
}

// IsNoted reports whether the API server has what another operator must find before a step is
// taken. What else changed in the status is written when it is reported.
func (v *View) IsNoted(purpose v1alpha1.DisruptionPurpose) bool {
	type essence struct {
		step           v1alpha1.Step
		place          bool
		revision, boot string
		switched       bool
	}
	of := func(status *v1alpha1.WindowsInstanceStatus) (e essence) {
		if here := Progress(status, purpose); here != nil {
			e.step = here.Step
		}
		e.place, e.revision = status.HasPlace(), status.DesiredRevision
		e.switched = status.Update != nil && status.Update.SwitchTime != nil
		if status.Reboot != nil {
			e.boot = status.Reboot.BootID
		}
		return e
	}
	return of(&v.Instance.Status) == of(v.Saved)
}

// ToStep begins a step.
func (p *Parts) ToStep(here *v1alpha1.Progress, step v1alpha1.Step) {
	if here.Step != step {
		here.Step, here.Since = step, Seconds(p.Now())
	}
}

// MustSave reports whether the present step is to be saved before it is taken. To wait for a place,
// or for verification, changes nothing.
func (v *View) MustSave(purpose v1alpha1.DisruptionPurpose) bool {
	step := Progress(&v.Instance.Status, purpose).Step
	return step != v1alpha1.StepWaiting && step != v1alpha1.StepVerifying && !v.IsNoted(purpose)
}

// KeepsPlace has a node that lost its place to a pause ask for one again before it goes on. One that
// was not touched yet but for its pods waits for it in service. It is done when the node may go on.
func (p *Parts) KeepsPlace(ctx context.Context, view *View, purpose v1alpha1.DisruptionPurpose,
	isSwitched bool, place func(view *View) Place) Outcome {
	status := &view.Instance.Status
	here := Progress(status, purpose)
	if here == nil || !Begun(here.Step) || status.HasPlace() {
		return Done()
	}
	if here.Step == v1alpha1.StepDraining && !isSwitched {
		if outcome := p.Nodes.ReturnToService(ctx, view.Node); !outcome.IsDone() {
			return outcome
		}
		here.Step, here.Since, status.Phase = v1alpha1.StepWaiting, Seconds(p.Now()), v1alpha1.PhaseReady
		return Done()
	}
	return p.TakePlace(view, place(view))
}

// TakePlace asks for a place in the rollout budget, unless the next try is not due yet.
func (p *Parts) TakePlace(view *View, place Place) Outcome {
	here := Progress(&view.Instance.Status, place.Purpose)
	if here.NextTime != nil {
		if after := here.NextTime.Sub(p.Now()); after > 0 {
			return Outcome{verdict: waiting, After: after, Problem: place.Last}
		}
	}
	return Outcome{Then: AskForPlace, Place: place}
}

// TryLater puts a node back into service until the next try. isBack says that this succeeded.
func (p *Parts) TryLater(ctx context.Context, view *View, purpose v1alpha1.DisruptionPurpose, result string,
	why *contract.Problem) (outcome Outcome, isBack bool) {
	if outcome = p.Nodes.ReturnToService(ctx, view.Node); !outcome.IsDone() {
		return outcome, false
	}
	status := &view.Instance.Status
	here := Progress(status, purpose)
	here.Tries++
	wait := policy.DisruptBackoff(here.Tries, view.Jitter)
	next := Seconds(p.Now().Add(wait))
	here.Step, here.Since, here.NextTime, here.ReadySince = v1alpha1.StepWaiting, Seconds(p.Now()), &next, nil
	outcome = Wait(wait, why.Reason, "%s", why.Detail)
	outcome.Released = Release(status, purpose, cmp.Or(result, string(why.Reason)))
	return outcome, true
}

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
