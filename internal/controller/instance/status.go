package instance

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// reporter writes the fields of a status that users read. The type record saves these fields.
type reporter struct {
	instance *v1alpha1.WindowsInstance
	memory   *memory
	meters   *meters
	now      func() time.Time
}

// enter begins or continues a phase. If first is true, a new attempt begins with this phase.
func (r reporter) enter(phase v1alpha1.Phase, first bool) {
	status := &r.instance.Status
	if status.Phase == phase && running(status, phase) {
		return
	}
	if first {
		status.Phases = nil
	}
	status.Phase = phase
	status.Phases = append(status.Phases, v1alpha1.PhaseTime{Phase: phase, StartTime: journey.Micros(r.now())})
	if r.memory.failedIn == "" {
		r.condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, contract.ReasonInProgress,
			"in phase "+string(phase))
	}
}

func running(status *v1alpha1.WindowsInstanceStatus, phase v1alpha1.Phase) bool {
	n := len(status.Phases)
	return n > 0 && status.Phases[n-1].Phase == phase && status.Phases[n-1].Milliseconds == nil
}

func (r reporter) passed(phase v1alpha1.Phase) {
	if took, ok := r.timed(phase); ok {
		r.meters.phaseSeconds.WithLabelValues(string(phase)).Observe(took.Seconds())
	}
	if r.memory.failedIn == phase {
		r.memory.failedIn = ""
	}
	switch phase {
	case v1alpha1.PhaseConnecting:
		r.condition(v1alpha1.ConditionReachable, metav1.ConditionTrue, "Connected", "the host accepted the login")
		if r.instance.Spec.ByItself == nil {
			r.condition(v1alpha1.ConditionKeyAuthorized, metav1.ConditionTrue, keyAccepted,
				"the current private key was accepted")
		}
	case v1alpha1.PhasePreflight:
		r.condition(v1alpha1.ConditionPreflightPassed, metav1.ConditionTrue, "Passed",
			"the host meets every requirement")
	}
}

// The method `timed` stores and returns the duration of a phase, even if the phase failed.
func (r reporter) timed(phase v1alpha1.Phase) (took time.Duration, ok bool) {
	phases := r.instance.Status.Phases
	if len(phases) == 0 || phases[len(phases)-1].Phase != phase {
		return 0, false
	}
	last := &phases[len(phases)-1]
	took = r.now().Sub(last.StartTime.Time)
	milliseconds := took.Milliseconds()
	last.Milliseconds = &milliseconds
	return took, true
}

// report writes an outcome into the conditions. `serving` is the Node, or nil if the Node is not in service. If isKnown
// is false, the condition Ready does not change.
func (r reporter) report(outcome journey.Outcome, serving *corev1.Node, isKnown bool) {
	status := &r.instance.Status
	if outcome.IsDone() {
		r.serves(status.Revision)
		r.condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, contract.ReasonNodeReady,
			"nothing is under way")
		return
	}
	p := outcome.Problem
	switch {
	case serving != nil:
		r.serves(serving.Annotations[contract.RevisionAnnotation])
	case isKnown:
		r.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, p.Reason, p.Detail)
	}
	progressing := metav1.ConditionTrue
	if p.Reason == contract.ReasonPaused || p.Reason == contract.ReasonPreflightOnly ||
		outcome.IsFailed() && r.instance.Spec.PreflightOnly {
		progressing = metav1.ConditionFalse
	}
	explained := contract.NewProblem(p.Reason, "%s", cut(p.Detail, maxWhy)).Explain()
	r.condition(v1alpha1.ConditionProgressing, progressing, p.Reason, explained+r.force(p.Reason, outcome.IsFailed()))
	if !outcome.IsFailed() {
		return
	}
	switch p.Reason.About() {
	case contract.AboutReach:
		r.condition(v1alpha1.ConditionReachable, metav1.ConditionFalse, p.Reason, p.Detail)
	case contract.AboutHost:
		r.condition(v1alpha1.ConditionPreflightPassed, metav1.ConditionFalse, p.Reason, p.Detail)
	}
}

func (r reporter) serves(revision string) {
	r.condition(v1alpha1.ConditionReady, metav1.ConditionTrue, contract.ReasonNodeReady,
		"node "+r.instance.Status.NodeName+" is Ready at revision "+revision)
}

// force returns how to force a failed removal, as the end of a message. If this is not possible, it returns "".
func (r reporter) force(reason contract.Reason, failed bool) string {
	if !failed || r.instance.Status.Phase != v1alpha1.PhaseRemoving || reason == contract.ReasonCleanupFailed {
		return ""
	}
	return fmt.Sprintf(" If the host no longer exists: kubectl -n %s patch wininst %s --type merge -p "+
		"'{\"spec\":{\"removalPolicy\":\"Force\"}}'.", r.instance.Namespace, r.instance.Name)
}

func (r reporter) condition(kind string, state metav1.ConditionStatus, reason contract.Reason, message string) {
	meta.SetStatusCondition(&r.instance.Status.Conditions, metav1.Condition{
		Type: kind, Status: state, Reason: string(reason), Message: shorten(message),
		ObservedGeneration: r.instance.Generation,
		LastTransitionTime: journey.Seconds(r.now()),
	})
}

// skew writes a condition if the releases of the node and the operator are too far apart. why describes the difference.
func (r reporter) skew(why string) {
	if why != "" {
		r.condition(v1alpha1.ConditionSkewSupported, metav1.ConditionFalse, contract.ReasonSkewUnsupported, why)
		return
	}
	if meta.FindStatusCondition(r.instance.Status.Conditions, v1alpha1.ConditionSkewSupported) != nil {
		r.condition(v1alpha1.ConditionSkewSupported, metav1.ConditionTrue, skewSupported,
			"this operator supports the node's release")
	}
}

const skewSupported contract.Reason = "Supported"

// workloads writes a condition about pods on the node that can't run there. `looked` is false if the pods were not
// checked yet. `again` is the time until the next reconcile, or 0.
func (r reporter) workloads(misplaced *contract.Problem, looked bool) (again time.Duration) {
	exists := meta.FindStatusCondition(r.instance.Status.Conditions, v1alpha1.ConditionWorkloadsFit) != nil
	switch {
	case misplaced != nil && misplaced.Reason == contract.ReasonPodsNotRead:
		r.condition(v1alpha1.ConditionWorkloadsFit, metav1.ConditionUnknown, misplaced.Reason, misplaced.Detail)
	case misplaced != nil:
		r.condition(v1alpha1.ConditionWorkloadsFit, metav1.ConditionFalse, misplaced.Reason, misplaced.Detail)
	case exists && !looked:
		r.condition(v1alpha1.ConditionWorkloadsFit, metav1.ConditionUnknown, contract.ReasonPodsNotRead,
			"this operator has not read the pods on the node yet")
	case exists:
		r.condition(v1alpha1.ConditionWorkloadsFit, metav1.ConditionTrue, workloadsFit,
			"no pod is known that can't run on the node")
	}
	if !looked {
		return unlookedRequeue
	}
	return 0
}

const unlookedRequeue = time.Minute

const workloadsFit contract.Reason = "Fit"

// sayKey reports in the condition Progressing that a joined host does not accept a key, if there is no other problem.
// If a new key could not be tried, only the condition KeyAuthorized reports this.
func (r reporter) sayKey(outcome journey.Outcome) {
	condition := meta.FindStatusCondition(r.instance.Status.Conditions, v1alpha1.ConditionKeyAuthorized)
	if !outcome.IsDone() || condition == nil || condition.Status == metav1.ConditionTrue {
		return
	}
	switch reason := contract.Reason(condition.Reason); {
	case reason == contract.ReasonKeyNotAuthorized:
		r.condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, reason,
			contract.NewProblem(reason, "the host accepts an earlier private key, and not the current one").Explain())
	case reason != keyUntried && r.memory.keyTrial.hash == r.instance.Status.PublicKeyHash:
		r.condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, reason, condition.Message)
	}
}
