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
	"github.com/windows-nodes/wmco/internal/daemon/trial"
)

// A revision is a transaction:
//
//	                       ┌── can't be prepared: nothing has changed ──┐
//	candidate ── applying ─┼── a step fails ──── roll back ─────────────┼── failed: tried again later
//	               │   ▲   └── applied ── verifying ── a service ended ─┘
//	               └───┘                      └── all is as desired ── verified
//	          a step has to wait
//
// If a step has to wait, because the host doesn't answer or a fact is unknown, the trial continues. Waiting is not a
// failure. When the step is taken later, it may still fail.
//
// trial.Next decides which action follows. The state file always records which revision is on trial and which revision
// was verified before it, so a restarted daemon continues the trial.

type pass struct {
	node *unstructured.Unstructured
	// candidate is the revision that the Node's annotation names. It is nil if the host already has this revision.
	candidate *state.Revision
	// `thorough` makes the pass read every file again.
	thorough bool
	// `lacking` is the problem that the candidate's payload is incomplete, or nil.
	lacking *contract.Problem
	// report is the result of the last check of the host. It is valid if isLooked is true. `broken` is a problem in
	// this report that did not exist before the revision on trial, or nil.
	report   apply.Report
	isLooked bool
	broken   *contract.Problem
}

// onTrial holds facts about the host's revision that the state file doesn't contain.
type onTrial struct {
	// isApplied reports that all steps of the revision were taken. A failed step counts as taken if it failed in the
	// same way before this revision. isReplaced reports that a new program of the daemon was installed.
	isApplied, isReplaced bool
	// verifyDue is when the services that the revision started have run long enough, or zero if there are none.
	verifyDue time.Time
	// `changed` reports that the revision has changed the host. `hampered` reports that the last pass had only failures
	// that existed before this revision. Then the next pass doesn't stop at a failed step.
	changed, hampered bool
	// `since` is when this daemon began to observe services under the current revision.
	since time.Time
	// `unreadable` is why this daemon can't parse the host's revision, or nil.
	unreadable *contract.Problem
}

// excuses reports whether a fault existed before the revision on trial. If so, this revision didn't cause the fault.
func (r *Reconciler) excuses(fault state.Fault) bool {
	return slices.ContainsFunc(r.State.Faults, fault.IsSame)
}

// resetTrial resets the facts about the host's revision, because the host has another revision now.
func (r *Reconciler) resetTrial() {
	r.trial = onTrial{since: r.Clock.Now()}
	r.applier.Try()
}

func (r *Reconciler) facts(ctx context.Context, p *pass) trial.Facts {
	f := trial.Facts{
		HasHeld: r.State.Verified, HasPrevious: r.State.Before != nil,
		IsReplaced: r.trial.isReplaced, NeedsReplacing: r.Program.Replaces(r.State.Manifest),
		Unreadable: r.trial.unreadable, Broken: p.broken,
		IsApplied: r.trial.isApplied, IsLooked: p.isLooked, Holds: p.isLooked && p.report.Holds(),
		IsVerifying: r.untilVerified() > 0,
	}
	if p.isLooked {
		return f
	}
	f.Ended, p.lacking = r.ended(ctx), nil
	if r.failures.mayTry(p.candidate) {
		p.lacking = r.supply.lacks(p.candidate)
		f.MayTry = p.lacking == nil
	}
	return f
}

// untilVerified returns how long the started services must still run. If this time is over, the result is not positive.
func (r *Reconciler) untilVerified() time.Duration {
	if r.trial.verifyDue.IsZero() {
		return 0
	}
	return r.trial.verifyDue.Sub(r.Clock.Now())
}

// pass takes actions until trial.Next says to wait. It returns the report of the last check of the host.
func (r *Reconciler) pass(ctx context.Context, p pass) apply.Report {
	for {
		f := r.facts(ctx, &p)
		next := trial.Next(f)
		logr.FromContextOrDiscard(ctx).V(1).Info("next", "action", next.Action, "because", next.When)
		switch next.Action {
		case trial.Try:
			r.begin(ctx, p.candidate)
			p.candidate = nil
		case trial.RollBack:
			r.rollBack(ctx, f.Why(), p.broken == nil || r.trial.changed)
			// The Node's annotation may have changed to yet another revision. If so, try that revision directly,
			// without applying the previous revision first.
			node, _ := r.node.Get()
			p = pass{node: node}
			p.candidate, _ = r.choose(ctx, node, false)
		case trial.Replace:
			p.broken = r.Program.Replace(ctx, r.State.Revision)
			r.trial.isReplaced = p.broken == nil
			p.look(apply.Report{}, p.broken)
		case trial.Apply:
			r.apply(ctx, &p)
		case trial.Repair:
			r.repair(ctx, &p)
		case trial.Finish:
			p.look(p.report, r.finish(ctx, p.report))
		default:
			if f.Unreadable != nil {
				p.report.Failed = append(p.report.Failed, f.Unreadable)
			}
			if p.lacking != nil {
				p.report.Waiting = append(p.report.Waiting, p.lacking)
			}
			return p.report
		}
		if p.isLooked && ctx.Err() != nil {
			return p.report
		}
	}
}

// look stores the report of a check of the host. If failed isn't nil, look adds it to the report's failures.
func (p *pass) look(report apply.Report, failed *contract.Problem) {
	if failed != nil {
		report.Failed = append(report.Failed, failed)
	}
	p.report, p.isLooked = report, true
}

// begin makes the candidate c the host's revision and starts its trial. If the new daemon in c doesn't run on this
// host, or the state file can't be written, begin records that c failed, and the host keeps its revision.
func (r *Reconciler) begin(ctx context.Context, c *state.Revision) {
	problem := r.Program.SmokeTest(ctx, c.Manifest)
	before := r.State.Revision.Name
	if problem == nil {
		err := r.State.Change(func() error {
			if r.State.Verified && r.State.Revision.Name != c.Name {
				last := r.State.Revision
				r.State.Before = &last
			}
			r.State.Revision, r.State.Verified = *c, false
			return nil
		})
		if err != nil {
			problem = apply.FileProblem(err)
		}
	}
	if problem != nil {
		if ctx.Err() == nil { // if the daemon was stopped, the revision did not fail
			r.failures.note(ctx, c.Name, problem, false)
		}
		return
	}
	logr.FromContextOrDiscard(ctx).Info("trying a revision", "revision", c.Name, "before", before)
	r.revisions.last = nil
	r.resetTrial()
	if !r.Program.Replaces(r.State.Manifest) {
		r.announce()
	}
}

// apply runs a pass for the revision on trial. It stops at the first failed step, unless the last pass was hampered.
func (r *Reconciler) apply(ctx context.Context, p *pass) {
	r.remember(ctx, p.node)
	report := r.applier.Apply(ctx, r.request(p, !r.trial.hampered))
	p.look(report, nil)
	if ctx.Err() != nil {
		return
	}
	if slices.ContainsFunc(report.Steps, func(s plan.Step) bool { return s.Kind == plan.StartService }) {
		r.trial.verifyDue = r.Clock.Now().Add(apply.VerifyTime)
	}
	r.trial.changed = r.trial.changed || report.Changed
	r.trial.hampered = len(report.Broken) > 0
	if i := slices.IndexFunc(report.Broken, func(f state.Fault) bool { return !r.excuses(f) }); i >= 0 {
		p.broken = &report.Broken[i].Problem
	}
	r.trial.isApplied = p.broken == nil && !report.Left
}

// repair runs a pass that continues after a failed step.
func (r *Reconciler) repair(ctx context.Context, p *pass) {
	r.remember(ctx, p.node)
	report := r.applier.Apply(ctx, r.request(p, false))
	p.look(report, nil)
	// While a revision is on trial, it may have caused the failures itself. Don't record these failures, because they
	// would also excuse a later revision.
	if r.State.Verified && ctx.Err() == nil {
		r.noteFaults(ctx, slices.Concat(report.Broken, report.CrashLooping, r.unjudged(report.CrashLooping)))
	}
	r.trial.isReplaced = r.Program.ReplacedBy(report)
}

// `unjudged` returns the recorded crash loops that aren't in `seen`, until services have been observed for StayTime.
// Such a crash loop may still exist: the daemon counts crashes from zero after its start and after each new revision.
func (r *Reconciler) unjudged(seen []state.Fault) []state.Fault {
	if r.Clock.Since(r.trial.since) >= apply.StayTime {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.State.Faults), func(f state.Fault) bool {
		return !f.CrashLooping || slices.ContainsFunc(seen, f.IsSame)
	})
}

// noteFaults records in the state file the faults that exist while no revision is on trial. `excuses` compares later
// faults with these faults.
func (r *Reconciler) noteFaults(ctx context.Context, faults []state.Fault) {
	isSame := slices.EqualFunc(r.State.Faults, faults,
		func(a, b state.Fault) bool { return a.IsSame(b) && a.CrashLooping == b.CrashLooping })
	r.State.Faults = faults
	if isSame {
		return
	}
	if err := r.State.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "the faults can't be recorded")
	}
}

func (r *Reconciler) request(p *pass, whole bool) apply.Request {
	request := apply.Request{Revision: r.State.Revision, Scope: plan.Everything, Thorough: p.thorough, Whole: whole}
	if p.node != nil {
		request.Node = p.node.Object
	}
	return request
}

// rollBack restores the previous revision, and records why the revision on trial failed. If the state file can't be
// written, it still contains the failed revision, so a restarted daemon tries that revision once more and rolls back
// again. This process retries that revision only after the pause.
func (r *Reconciler) rollBack(ctx context.Context, why *contract.Problem, changed bool) {
	failed := r.State.Revision.Name
	logr.FromContextOrDiscard(ctx).Info("rolling back to the previous revision", "failed", failed, "reason", why.Reason,
		"detail", why.Detail, "revision", r.State.Before.Name)
	r.State.Back()
	r.resetTrial()
	r.announce()
	r.failures.note(ctx, failed, why, changed || r.Program.Replaces(r.State.Manifest))
}

// `ended` returns a problem if a service that the revision on trial started has ended. It ignores a service that failed
// in the same way before this revision.
func (r *Reconciler) ended(ctx context.Context) *contract.Problem {
	if r.State.Verified || r.trial.verifyDue.IsZero() {
		return nil
	}
	ended := slices.DeleteFunc(r.applier.Ended(ctx), func(name string) bool {
		return r.excuses(apply.CrashLooping(name))
	})
	if len(ended) == 0 {
		return nil
	}
	return contract.NewProblem(contract.ReasonServiceFailed, "service %s ended right after its start, or repeatedly",
		strings.Join(ended, ", "))
}

// finish records in the state file that the host's revision is verified, which ends the trial. If the state file can't
// be written, finish returns a problem, because a restarted daemon would continue the trial.
func (r *Reconciler) finish(ctx context.Context, report apply.Report) *contract.Problem {
	faults := r.unjudged(report.CrashLooping)
	if err := r.State.Change(func() error {
		r.State.Verified, r.State.Failed, r.State.Faults = true, nil, faults
		return nil
	}); err != nil {
		return apply.FileProblem(err)
	}
	r.trial.verifyDue = time.Time{}
	logr.FromContextOrDiscard(ctx).Info("the revision holds", "revision", r.State.Revision.Name)
	return nil
}

// `recovered` reports whether the record of the failed revision can be deleted, because the host now has this revision.
// While the revision's services are being verified, the record stays, so that the next pause is longer if the revision
// is rolled back again. After that, the record can be deleted even if the revision is not verified: a failure that is
// older than the revision may prevent the verification.
func (r *Reconciler) recovered(last *state.FailedRevision) bool {
	return last.Name == r.State.Revision.Name && (r.State.Verified || r.untilVerified() <= 0)
}
