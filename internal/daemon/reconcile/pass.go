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
//	candidate ── applying ─┼── a step fails ──── back to what held ─────┼── failed: tried again later
//	               │   ▲   └── applied ── verifying ── a service ended ─┘
//	               └───┘                      └── everything holds ── verified
//	          a step has to wait
//
// If a step has to wait, because the host doesn't answer or a fact is unknown, the trial continues. Waiting is not a
// failure. When the step is taken later, it may still fail.
//
// trial.Next decides which action follows. The state file always records which revision is on trial and which one held
// before, so a restarted daemon continues from there.

// pass holds the inputs and the results of one pass.
type pass struct {
	node *unstructured.Unstructured
	// candidate is the revision that the Node names, if it is not the host's revision; nil otherwise.
	candidate *state.Revision
	// thorough makes the pass read every file again.
	thorough bool
	// lacking is the payload that the candidate waits for, or nil.
	lacking *contract.Problem
	// report is the result of the last look at the host, if isLooked. broken is the problem that occurred there for the
	// first time.
	report   apply.Report
	isLooked bool
	broken   *contract.Problem
}

// onTrial holds facts about the host's revision that the state file doesn't contain.
type onTrial struct {
	// isApplied reports that all steps of the revision were taken, or failed in the same way as before this revision.
	// isReplaced reports that another daemon's program is in place.
	isApplied, isReplaced bool
	// verifyDue is when the started services have run long enough, or zero.
	verifyDue time.Time
	// changed reports that the revision has changed the host. hampered reports that a step fails that already failed
	// before this revision. The pass doesn't stop at such a failure.
	changed, hampered bool
	// since is when this daemon began to watch the services under the current revision.
	since time.Time
	// unreadable is why this daemon doesn't understand the host's revision, or nil.
	unreadable *contract.Problem
}

// excuses reports whether a fault existed before the revision on trial. If so, the revision on trial didn't cause the
// fault.
func (r *Reconciler) excuses(fault state.Fault) bool {
	return slices.ContainsFunc(r.State.Faults, fault.IsSame)
}

// resetTrial resets the facts about the host's revision, because the host has another revision now.
func (r *Reconciler) resetTrial() {
	r.trial = onTrial{since: r.Clock.Now()}
	r.applier.Try()
}

// facts collects the facts that decide the next action.
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

// untilVerified returns how long the started services still have to run.
func (r *Reconciler) untilVerified() time.Duration {
	if r.trial.verifyDue.IsZero() {
		return 0
	}
	return r.trial.verifyDue.Sub(r.Clock.Now())
}

// pass acts until there is nothing to do now, and returns the report of the last look at the host.
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
			// The Node may name another revision now. Then the daemon tries this other revision next, without first
			// applying the previous revision.
			node, _ := r.node.Get()
			p = pass{node: node}
			p.candidate, _ = r.choose(ctx, node)
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

// look records a look at the host, and a problem with it.
func (p *pass) look(report apply.Report, failed *contract.Problem) {
	if failed != nil {
		report.Failed = append(report.Failed, failed)
	}
	p.report, p.isLooked = report, true
}

// begin makes a candidate the host's revision, on trial. If that fails, begin records why, and the host doesn't
// change.
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

// apply tries the state's revision as a whole.
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

// repair makes a pass that continues after a failed step.
func (r *Reconciler) repair(ctx context.Context, p *pass) {
	r.remember(ctx, p.node)
	report := r.applier.Apply(ctx, r.request(p, false))
	p.look(report, nil)
	// If a step fails at a revision on trial, the revision may have caused the failure. So it must not excuse a later
	// revision.
	if r.State.Verified && ctx.Err() == nil {
		r.noteFaults(ctx, slices.Concat(report.Broken, report.CrashLooping, r.unjudged(report.CrashLooping)))
	}
	r.trial.isReplaced = r.Program.ReplacedBy(report)
}

// unjudged returns the services that crashed in a loop before, and that have not been observed for StayTime since then.
// A new daemon, and a new revision, both start counting crashes from zero.
func (r *Reconciler) unjudged(seen []state.Fault) []state.Fault {
	if r.Clock.Since(r.trial.since) >= apply.StayTime {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.State.Faults), func(f state.Fault) bool {
		return !f.CrashLooping || slices.ContainsFunc(seen, f.IsSame)
	})
}

// noteFaults records in the state file which faults exist at a revision that is not on trial. A daemon that starts
// later reads them.
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

// rollBack restores the previous revision, and records why the revision on trial failed. If the record can't be
// written, the state file still names the failed revision. A restarted daemon then tries it and rolls back once more.
// This daemon does not.
func (r *Reconciler) rollBack(ctx context.Context, why *contract.Problem, changed bool) {
	failed := r.State.Revision.Name
	logr.FromContextOrDiscard(ctx).Info("rolling back to what held", "failed", failed, "reason", why.Reason, "detail",
		why.Detail, "revision", r.State.Before.Name)
	r.State.Back()
	r.resetTrial()
	r.announce()
	r.failures.note(ctx, failed, why, changed || r.Program.Replaces(r.State.Manifest))
}

// ended checks whether the services that the revision on trial started are still running, and returns a problem if not.
// It ignores a service that also failed before this revision.
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

// finish records that the host's revision holds. If the record can't be written, finish returns a problem, because a
// restarted daemon would not know that the revision holds.
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

// recovered reports whether the host now has the revision that failed before. While the revision is on trial the
// failure stays recorded, so that the next pause is longer if the revision is rolled back again. An unverified
// revision also counts as recovered once its services have run long enough: it may stay unverified because of a
// failure that is older than the revision.
func (r *Reconciler) recovered(last *state.FailedRevision) bool {
	return last.Name == r.State.Revision.Name && (r.State.Verified || r.untilVerified() <= 0)
}
