package reconcile

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// A desired state is a transaction:
//
//	                ┌── can't be prepared: nothing has changed ──┐
//	wish ── try ────┼── a step fails ──────── back to what held ─┼── refused: tried again later
//	                └── done ── on proof ── a service ended ─────┘
//	                               └── everything holds ── proven
//
// The ledger knows at every moment which one is tried and which one held before, so a daemon that
// dies anywhere goes on from there.

// failedRevision is a desired state that could not be had.
type failedRevision struct {
	version string
	problem *contract.Problem
	// pause lies before the next attempt, which is due at until.
	pause time.Duration
	until time.Time
}

func failedRevisionOf(r *state.FailedRevision) *failedRevision {
	if r == nil {
		return nil
	}
	return &failedRevision{version: r.Version, problem: r.Problem, pause: r.Pause, until: r.Until}
}

// clamped is what a daemon before this one noted, with no longer a pause than one can be: the clock
// may have been wrong then, or be wrong now.
func (f *failedRevision) clamped(limit time.Duration, now time.Time) *failedRevision {
	if f == nil {
		return nil
	}
	f.pause = min(max(f.pause, 0), limit)
	if latest := now.Add(jitter(limit)); f.until.After(latest) {
		f.until = latest
	}
	return f
}

// wants says whether there is a desired state that is to be tried now.
func (t *Reconciler) wants(w *candidate) bool {
	return w != nil && (t.refused == nil || t.refused.version != w.Version || !t.Clock.Now().Before(t.refused.until))
}

// try brings the host to another desired state, or leaves it at, or brings it back to, the one that
// held.
func (t *Reconciler) try(ctx context.Context, node *unstructured.Unstructured, w *candidate,
	thorough bool) apply.Report {
	log := logr.FromContextOrDiscard(ctx)
	if problem := t.rehearse(ctx, w.Manifest); problem != nil {
		t.refuse(ctx, w.Version, problem, false)
		return t.hold(ctx, node, thorough)
	}
	if w.data != nil {
		if err := t.vault.Keep(ctx, w.Manifest.Confidential, w.data); err != nil {
			t.refuse(ctx, w.Version, apply.FileProblem(err), false)
			return t.hold(ctx, node, thorough)
		}
	}
	held := t.Book.State
	t.last = identified{}
	if t.Book.Proven && t.Book.Version != w.Version {
		t.Book.Before = &state.Revision{Version: t.Book.Version, Manifest: t.Book.Manifest, Partial: t.Book.Partial}
	}
	t.Book.Version, t.Book.Manifest, t.Book.Partial, t.Book.Proven = w.Version, w.Manifest, w.Partial, false
	if err := t.Book.Save(); err != nil {
		t.Book.State = held
		t.refuse(ctx, w.Version, apply.FileProblem(err), false)
		return t.hold(ctx, node, thorough)
	}
	log.Info("trying a desired state", "version", w.Version, "before", held.Version)
	t.confidential, t.wished, t.unsure = w.confidential, nil, false
	if !t.exchanges(t.Book.Manifest) {
		t.follows()
	}
	return t.attempt(ctx, node, thorough)
}

// attempt makes the pass by which a desired state is tried; the ledger names it.
func (t *Reconciler) attempt(ctx context.Context, node *unstructured.Unstructured, thorough bool) apply.Report {
	t.attempting = false
	if t.exchanges(t.Book.Manifest) {
		return t.exchange(ctx, node)
	}
	t.remember(ctx, node)
	t.began = t.Host.System.Now() // the clock by which the keeper notes starts
	report := t.keeper.Pass(ctx, t.request(node, thorough, t.Book.Before != nil))
	if ctx.Err() != nil {
		t.attempting = true
		return report
	}
	t.proofDue = time.Time{}
	if started(report) && t.Book.Before != nil {
		t.proofDue = t.Clock.Now().Add(apply.ProofTime)
	}
	var fresh []*contract.Problem
	for _, p := range report.Broken {
		if !slices.ContainsFunc(t.standing, func(other *contract.Problem) bool { return *other == *p }) {
			fresh = append(fresh, p)
		}
	}
	if t.Book.Before == nil || len(fresh) == 0 {
		return report
	}
	return t.back(ctx, node, fresh[0], report.Changed)
}

func started(report apply.Report) bool {
	return slices.ContainsFunc(report.Steps, func(s plan.Step) bool { return s.Kind == plan.StartService })
}

// back brings the host back to the desired state that held before the present one.
func (t *Reconciler) back(ctx context.Context, node *unstructured.Unstructured, why *contract.Problem,
	changed bool) apply.Report {
	failed := t.Book.Version
	t.last = identified{}
	logr.FromContextOrDiscard(ctx).Info("going back to what held", "failed", failed, "reason", why.Reason, "detail",
		why.Detail, "version", t.Book.Before.Version)
	t.Book.Back()
	_, t.confidential = t.sealed(ctx, t.Book.Manifest)
	t.proofDue, t.unsure, t.attempting = time.Time{}, false, false
	t.follows()
	// If it can't be noted, the other one is still on trial in the file: at worst it is tried, and
	// left, once more.
	t.refuse(ctx, failed, why, changed || t.exchanges(t.Book.Manifest))
	// Something newer may be wanted by now: then there is no need to go back first.
	latest, _ := t.node.Get()
	if w, _ := t.choose(ctx, latest); w != nil && w.Version != failed {
		return t.try(ctx, latest, w, false)
	}
	return t.hold(ctx, node, false)
}

// refuse remembers that a desired state could not be had, in the ledger too: who tries it again may
// be another process. One that changed something on the host is tried again after longer.
func (t *Reconciler) refuse(ctx context.Context, version string, why *contract.Problem, changed bool) {
	first, limit := t.Pace.Failing, t.Pace.FailingLimit
	if changed {
		first, limit = t.Pace.Refused, t.Pace.RefusedLimit
	}
	var pause time.Duration
	if t.refused != nil && t.refused.version == version {
		pause = t.refused.pause
	}
	pause = max(grow(pause, 2, first, limit), first)
	t.Book.Refuse(version, why, pause, t.Clock.Now().Add(jitter(pause)))
	t.refused = failedRevisionOf(t.Book.Refused)
	if err := t.Book.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "it can't be noted that a desired state was left")
	}
}

// pardon forgets what was refused.
func (t *Reconciler) pardon(ctx context.Context) {
	t.refused, t.Book.Refused = nil, nil
	if err := t.Book.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Info("what was refused can't be crossed off", "detail", err.Error())
	}
}

// overcame says that the host has what was refused before. While that is on trial the refusal
// stands, so that the next pause is longer if it has to be left again. It may remain unproven for
// as long as something fails that failed before, too.
func (t *Reconciler) overcame() bool {
	return t.refused.version == t.Book.Version && (t.Book.Proven || !t.Clock.Now().Before(t.proofDue))
}

// unproven looks whether what was started for a new desired state still runs. It answers the
// problem if not.
func (t *Reconciler) unproven(ctx context.Context) *contract.Problem {
	if t.Book.Proven || t.Book.Before == nil || t.proofDue.IsZero() {
		return nil
	}
	ended := t.keeper.Ended(ctx, t.began)
	if len(ended) == 0 {
		return nil
	}
	return contract.NewProblem(contract.ReasonServiceFailed, "service %s ended right after its start",
		strings.Join(ended, ", "))
}

// settle marks the present desired state as one that holds, as soon as it does; it answers how long
// its proof still takes. What can't be written down is not proven: another process would not see
// it.
func (t *Reconciler) settle(ctx context.Context, report apply.Report) (time.Duration, *contract.Problem) {
	if t.Book.Proven || !report.Holds() {
		return 0, nil
	}
	if left := t.proofDue.Sub(t.Clock.Now()); !t.proofDue.IsZero() && left > 0 {
		return left, nil
	}
	if err := t.Book.Change(func() error {
		t.Book.Proven, t.Book.Refused = true, nil
		return nil
	}); err != nil {
		return 0, apply.FileProblem(err)
	}
	t.proofDue, t.refused = time.Time{}, nil
	logr.FromContextOrDiscard(ctx).Info("the desired state holds", "version", t.Book.Version)
	return 0, nil
}

// hold makes a pass at the present desired state.
func (t *Reconciler) hold(ctx context.Context, node *unstructured.Unstructured, thorough bool) apply.Report {
	t.remember(ctx, node)
	report := t.keeper.Pass(ctx, t.request(node, thorough, false))
	t.standing = report.Failed
	t.exchanged = t.exchanged || t.exchangedBy(report)
	return report
}

func (t *Reconciler) request(node *unstructured.Unstructured, thorough, whole bool) apply.Request {
	request := apply.Request{Scope: plan.Everything, Confidential: t.confidential, Thorough: thorough, Whole: whole}
	if node != nil {
		request.Node = node.Object
	}
	return request
}

// follows tells others what the present desired state says to them.
func (t *Reconciler) follows() {
	if t.Follow != nil {
		t.Follow(t.Book.Manifest)
	}
}
