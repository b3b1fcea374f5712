package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// enter begins a phase; entering the one it is in goes on with it. first begins a new attempt.
func (w *walk) enter(phase v1alpha1.Phase, first bool) {
	status := &w.instance.Status
	if status.Phase == phase && running(status, phase) {
		return
	}
	if first {
		status.Phases = nil
	}
	status.Phase = phase
	status.Phases = append(status.Phases, v1alpha1.PhaseTime{Phase: phase, StartTime: metav1.NewMicroTime(w.now())})
	if w.life.failedIn == "" {
		w.say(contract.ReasonInProgress, "", "")
	}
	w.condition(v1alpha1.ConditionProgressing, metav1.ConditionTrue, contract.ReasonInProgress,
		"in phase "+string(phase))
}

// running says whether a phase has begun and not ended.
func running(status *v1alpha1.WindowsInstanceStatus, phase v1alpha1.Phase) bool {
	n := len(status.Phases)
	return n > 0 && status.Phases[n-1].Phase == phase && status.Phases[n-1].Milliseconds == nil
}

// passed ends a phase.
func (w *walk) passed(phase v1alpha1.Phase) {
	if took, ok := w.timed(phase); ok {
		w.meters.phaseSeconds.WithLabelValues(string(phase)).Observe(took.Seconds())
	}
	if w.life.failedIn == phase {
		w.life.failedIn = ""
	}
	switch phase {
	case v1alpha1.PhaseConnecting:
		w.condition(v1alpha1.ConditionReachable, metav1.ConditionTrue, "Connected", "the host let us in")
		w.condition(v1alpha1.ConditionKeyAuthorized, metav1.ConditionTrue, keyAccepted,
			"the present private key let us in")
	case v1alpha1.PhasePreflight:
		w.condition(v1alpha1.ConditionPreflightPassed, metav1.ConditionTrue, "Passed",
			"the host meets every requirement")
	}
}

// timed notes how long a phase took that ends now, well or not.
func (w *walk) timed(phase v1alpha1.Phase) (took time.Duration, ok bool) {
	phases := w.instance.Status.Phases
	if len(phases) == 0 || phases[len(phases)-1].Phase != phase {
		return 0, false
	}
	last := &phases[len(phases)-1]
	took = w.now().Sub(last.StartTime.Time)
	milliseconds := took.Milliseconds()
	last.Milliseconds = &milliseconds
	return took, true
}

// ready notes the end of the way in.
func (w *walk) ready(ctx context.Context) {
	status := &w.instance.Status
	status.Phase, status.Failures, status.NextAttemptTime = v1alpha1.PhaseReady, 0, nil
	if failure := status.UpdateFailure; failure != nil && status.Revision != status.HeldRevision &&
		failure.Revision != status.HeldRevision {
		status.UpdateFailure = nil
	}
	status.DesiredRevision, status.HeldRevision, status.Update = status.Revision, status.Revision, nil
	if status.JoinedTime == nil {
		now := microless(w.now())
		status.JoinedTime = &now
	}
	w.arrived()
	w.life.failedIn = ""
	w.report(ctx, journey.Done())
	w.tellSetup(ctx)
}

// report turns an outcome into reason, code, fix and conditions, in this one place. Ready tells of
// the node, whatever is under way: a host that waits for its update, or fails at it, serves on.
func (w *walk) report(ctx context.Context, outcome journey.Outcome) {
	status := &w.instance.Status
	if outcome.IsDone() {
		w.say(contract.ReasonNodeReady, "", "")
		w.serves(status.Revision)
		w.condition(v1alpha1.ConditionProgressing, metav1.ConditionFalse, contract.ReasonNodeReady,
			"nothing is under way")
		return
	}
	p := outcome.Problem
	w.say(p.Reason, p.Detail, w.fix(p.Reason, outcome.IsFailed()))
	node, err := w.journeys.health.Serving(ctx, w.instance)
	switch {
	case err != nil: // what was said of the node before is the best that is known
	case node != nil:
		w.serves(node.Annotations[contract.RevisionAnnotation])
	default:
		w.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, p.Reason, p.Detail)
	}
	progressing := metav1.ConditionTrue
	if p.Reason == contract.ReasonPaused {
		progressing = metav1.ConditionFalse
	}
	w.condition(v1alpha1.ConditionProgressing, progressing, p.Reason, p.Detail)
	if !outcome.IsFailed() {
		return
	}
	switch p.Reason.About() {
	case contract.AboutReach:
		w.condition(v1alpha1.ConditionReachable, metav1.ConditionFalse, p.Reason, p.Detail)
	case contract.AboutHost:
		w.condition(v1alpha1.ConditionPreflightPassed, metav1.ConditionFalse, p.Reason, p.Detail)
	}
}

func (w *walk) serves(version string) {
	w.condition(v1alpha1.ConditionReady, metav1.ConditionTrue, contract.ReasonNodeReady,
		"node "+w.instance.Status.NodeName+" is Ready at version "+version)
}

// fix is what the user can do; for a removal that fails, the way out is always named.
func (w *walk) fix(reason contract.Reason, failed bool) string {
	fix := reason.Fix()
	if failed && w.instance.Status.Phase == v1alpha1.PhaseRemoving && reason != contract.ReasonCleanupFailed {
		fix += fmt.Sprintf(" If the host is gone for good: kubectl -n %s patch wininst %s --type merge -p "+
			"'{\"spec\":{\"removalPolicy\":\"Force\"}}'.",
			w.instance.Namespace, w.instance.Name)
	}
	return fix
}

func (w *walk) say(reason contract.Reason, message, fix string) {
	status := &w.instance.Status
	status.Reason, status.Code, status.Message, status.Fix = string(reason), fmt.Sprintf("W%d", reason.Number()),
		message, fix
}

func (w *walk) condition(kind string, state metav1.ConditionStatus, reason contract.Reason, message string) {
	meta.SetStatusCondition(&w.instance.Status.Conditions, metav1.Condition{
		Type: kind, Status: state, Reason: string(reason), Message: shorten(message),
		ObservedGeneration: w.instance.Generation,
		LastTransitionTime: microless(w.now()),
	})
}

// result saves once and says when to come again.
func (w *walk) result(ctx context.Context, after time.Duration) (ctrl.Result, error) {
	if err := w.save(ctx); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// promptly is how long a daemon that was told of a version may take until the instance says that it
// is awaited. Nearly all are there by then, and a change that concerns hundreds of nodes costs each
// of them one write of its status instead of two.
const promptly = 15 * time.Second

// What comes of a version that hundreds of nodes were told at once is written down by few at a
// time, and by the others a little later: while nodes have yet to hear and to answer, that goes
// first. It is so for as long as lately, after a node was told.
const (
	noters = 4
	lately = time.Minute
	later  = time.Second
)

// await saves what was reported of an outcome, and says when to come again. For the quiet time
// after a daemon was told of a version it keeps to itself that the node has yet to follow, to be
// Ready again or to stay so, if the daemon says nothing against it.
func (w *walk) await(ctx context.Context, node *corev1.Node, outcome journey.Outcome,
	quiet time.Duration) (ctrl.Result, error) {
	since := w.now().Sub(w.life.told)
	if quiet == 0 || since >= max(quiet, lately) || node.Annotations[contract.ApplyStatusAnnotation] != "" {
		return w.result(ctx, outcome.After)
	}
	if !outcome.IsDone() && since < quiet && patient(outcome.Problem.Reason) {
		return w.postpone(outcome.After, quiet-since)
	}
	if !w.urgent() {
		if !w.notes.TryAcquire(1) {
			return w.postpone(outcome.After, later+time.Duration(w.jitter()*float64(later)))
		}
		defer w.notes.Release(1)
	}
	return w.result(ctx, outcome.After)
}

// postpone keeps to itself what is known, until it is time to come again.
func (w *walk) postpone(after, wait time.Duration) (ctrl.Result, error) {
	w.remember()
	return ctrl.Result{RequeueAfter: soonest(after, wait)}, nil
}

// patient says that a daemon has time to get over a reason by itself.
func patient(reason contract.Reason) bool {
	switch reason {
	case contract.ReasonRevisionPending, contract.ReasonNodeNotReady, contract.ReasonSettling:
		return true
	}
	return false
}

// urgent says that somebody waits for what is to be written: for a place in the rollout budget, or
// for a node that serves or does not.
func (w *walk) urgent() bool {
	of := func(status *v1alpha1.WindowsInstanceStatus) [4]bool {
		return [4]bool{
			status.Disruption != nil, status.Update != nil, status.Reboot != nil,
			meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady),
		}
	}
	return of(&w.saved.Status) != of(&w.instance.Status)
}

// save writes the status where it differs from what the API server has. What can't be written now
// is kept and written later: a pinned host key or a reboot that was asked for must not be lost.
func (w *walk) save(ctx context.Context) error {
	fit(&w.instance.Status)
	w.remember()
	if equality.Semantic.DeepEqual(w.saved.Status, w.instance.Status) {
		return nil
	}
	w.instance.ResourceVersion = w.life.version
	patch, err := statusPatch(w.instance)
	if err != nil {
		return err
	}
	patched := w.instance.DeepCopy()
	if err = w.client.Status().Patch(ctx, patched, patch); err != nil {
		return fmt.Errorf("saving the status: %w", vanished(err))
	}
	ready := func(status v1alpha1.WindowsInstanceStatus) bool {
		return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
	}
	placeIsFree := w.saved.Status.Disruption != nil && w.instance.Status.Disruption == nil || !ready(w.saved.Status) &&
		ready(w.instance.Status)
	w.life.saved, w.life.version = w.life.status.DeepCopy(), patched.ResourceVersion
	w.saved.Status = *w.life.status.DeepCopy()
	w.instance.ResourceVersion, w.saved.ResourceVersion = patched.ResourceVersion, patched.ResourceVersion
	if placeIsFree {
		w.gate.Freed()
	}
	return nil
}

// remember keeps what is known, and what it was made from.
func (w *walk) remember() {
	w.life.status, w.life.saved = w.instance.Status.DeepCopy(), w.saved.Status.DeepCopy()
	w.life.version = newer(w.instance.ResourceVersion, w.life.version)
}

// statusPatch replaces the status, of this very instance only, as it was last seen or written: one
// that took the name meanwhile has another UID, and what another operator wrote meanwhile, such as
// a place in the rollout budget, is not overwritten. A merge patch could not name the UID, because
// the API server overlooks what a patch of a status says about anything but the resource version.
func statusPatch(instance *v1alpha1.WindowsInstance) (client.Patch, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	text, err := json.Marshal([]operation{{"test", "/metadata/uid", instance.UID},
		{"add", "/metadata/resourceVersion", instance.ResourceVersion}, {"add", "/status", instance.Status}})
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, text), nil
}

// newer of two versions of one object, which are numbers that grow (KEP-5504).
func newer(a, b string) string {
	numberA, errA := strconv.ParseUint(a, 10, 64)
	numberB, errB := strconv.ParseUint(b, 10, 64)
	if errA == nil && errB == nil && numberB > numberA {
		return b
	}
	return a
}

// Limits of the API in characters, and here in bytes.
const (
	maxMessage  = 32768 // of a condition
	maxWhy      = 4096  // why an update failed
	maxRevision = 253
	maxBootID   = 128
	maxPhases   = 64
)

// fit cuts the texts that a host or its kubelet chose, in part or as a whole, to what the API takes:
// otherwise a host could keep its status from being written. No name is among them.
func fit(status *v1alpha1.WindowsInstanceStatus) {
	status.Message, status.Fix = cut(status.Message, maxWhy), cut(status.Fix, maxWhy)
	status.Revision, status.HeldRevision = cut(status.Revision, maxRevision), cut(status.HeldRevision, maxRevision)
	status.KubeletVersion = cut(status.KubeletVersion, maxRevision)
	status.Phases = status.Phases[max(0, len(status.Phases)-maxPhases):]
	if u := status.Update; u != nil {
		u.Message, u.From = cut(u.Message, maxWhy), cut(u.From, maxRevision)
	}
	if f := status.UpdateFailure; f != nil {
		f.Message = cut(f.Message, maxWhy)
	}
	if r := status.Reboot; r != nil {
		r.BootID = cut(r.BootID, maxBootID)
	}
}

func shorten(message string) string { return cut(message, maxMessage) }

// cut leaves at most so many bytes of a text, and no half of a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// microless is a time as the API server keeps it: in whole seconds. Comparing with what was read
// must find no difference.
func microless(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }
