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
// A step that has to wait, because the host says nothing or not all is known, keeps the trial going for as long. That
// is no failure; when it is taken in the end, it may fail.
//
// trial.Next decides which action follows. The state file says at every moment which revision is tried and which one
// held before, so a daemon that dies anywhere goes on from there.

// pass is what one pass is made from, and what has become of it.
type pass struct {
	node *unstructured.Unstructured
	// candidate is the revision that the Node names if the host is not brought to it, or nil.
	candidate *state.Revision
	// thorough reads every file again.
	thorough bool
	// unreadable is why the revision on trial could not be read in time; nil otherwise.
	unreadable *contract.Problem
	// lacking is what the candidate waits for, or nil.
	lacking *contract.Problem
	// report is of the last look at the host, if isLooked, and broken what failed in it for the first time.
	report   apply.Report
	isLooked bool
	broken   *contract.Problem
}

// onTrial is what is known of the host's revision, beside what the state file says.
type onTrial struct {
	// isApplied says that all of its steps were taken, isReplaced that another daemon's program is in place.
	isApplied, isReplaced bool
	// verifyDue is when what was started by it has run long enough, or zero.
	verifyDue time.Time
	// changed says that it has changed something on the host, hampered that something fails in it that failed before:
	// that is not waited for.
	changed, hampered bool
	// since is when services may have been started otherwise than before, or were first seen: when this
	// daemon began, and when the host was given another revision.
	since time.Time
	// unsure says that this daemon did not understand all of the state's revision at its start. It is read again.
	unsure bool
}

// excuses says whether a fault is none of the revision on trial, because it was there before.
func (r *Reconciler) excuses(fault state.Fault) bool {
	return slices.ContainsFunc(r.State.Faults, fault.IsSame)
}

// restart forgets what is known of the host's revision, because the host has another revision now.
func (r *Reconciler) restart() {
	r.identity = identity{}
	r.trial = onTrial{since: r.Clock.Now()}
	r.applier.Try()
}

// facts gathers what decides about the next action.
func (r *Reconciler) facts(ctx context.Context, p *pass) trial.Facts {
	f := trial.Facts{
		HasHeld: r.State.Verified, HasPrevious: r.State.Before != nil,
		IsReplaced: r.trial.isReplaced, NeedsReplacing: r.Program.Replaces(r.State.Manifest),
		IsUnread: r.isUnread(), Unreadable: p.unreadable, Broken: p.broken,
		IsApplied: r.trial.isApplied, IsLooked: p.isLooked, Holds: p.isLooked && p.report.Holds() && !r.isUnread(),
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

// untilVerified is how long what was started has to run yet.
func (r *Reconciler) untilVerified() time.Duration {
	if r.trial.verifyDue.IsZero() {
		return 0
	}
	return r.trial.verifyDue.Sub(r.Clock.Now())
}

// pass acts until there is nothing left to do for now, and returns the report of the last look at the host.
func (r *Reconciler) pass(ctx context.Context, p pass) apply.Report {
	for {
		f := r.facts(ctx, &p)
		next := trial.Next(f)
		logr.FromContextOrDiscard(ctx).V(1).Info("next", "action", next.Action, "because", next.When)
		switch next.Action {
		case trial.Try:
			r.accept(ctx, p.candidate)
			p.candidate = nil
		case trial.RollBack:
			r.rollBack(ctx, f.Why(), p.broken == nil || r.trial.changed)
			// The Node may name another revision by now: then there is no need to go back first.
			node, _ := r.node.Get()
			p = pass{node: node}
			p.candidate, _ = r.choose(ctx, node)
		case trial.Replace:
			p.broken = r.Program.Replace(ctx)
			r.trial.isReplaced = p.broken == nil
			p.look(apply.Report{}, p.broken)
		case trial.Apply:
			r.apply(ctx, &p)
		case trial.Repair:
			r.repair(ctx, &p)
		case trial.Finish:
			p.look(p.report, r.finish(ctx, p.report))
		default:
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

// look notes a look at the host, and a problem with it.
func (p *pass) look(report apply.Report, failed *contract.Problem) {
	if failed != nil {
		report.Failed = append(report.Failed, failed)
	}
	p.report, p.isLooked = report, true
}

// accept makes a candidate the host's revision, on trial. If that can't be, accept notes why, and nothing has changed.
func (r *Reconciler) accept(ctx context.Context, c *state.Revision) {
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
		if ctx.Err() == nil { // that this daemon is stopped is no fault of the revision
			r.failures.note(ctx, c.Name, problem, false)
		}
		return
	}
	logr.FromContextOrDiscard(ctx).Info("trying a revision", "revision", c.Name, "before", before)
	r.revisions.last = nil
	r.restart()
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

// repair makes a pass at the state's revision, in which what fails keeps nothing else back.
func (r *Reconciler) repair(ctx context.Context, p *pass) {
	r.remember(ctx, p.node)
	report := r.applier.Apply(ctx, r.request(p, false))
	p.look(report, nil)
	// What fails at a revision on trial may be its own fault: it excuses none that follows.
	if r.State.Verified && ctx.Err() == nil {
		r.noteFaults(ctx, slices.Concat(report.Broken, report.CrashLooping, r.unjudged(report.CrashLooping)))
	}
	r.trial.isReplaced = r.Program.ReplacedBy(report)
}

// unjudged are the services that did not stay up before and were not seen for long enough since to
// say more. Each daemon counts ends anew, and each start with something else begins anew, too.
func (r *Reconciler) unjudged(seen []state.Fault) []state.Fault {
	if r.Clock.Since(r.trial.since) >= apply.StayTime {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.State.Faults), func(f state.Fault) bool {
		return !f.CrashLooping || slices.ContainsFunc(seen, f.IsSame)
	})
}

// noteFaults writes down what fails at a revision that is not on trial, for the next daemon.
func (r *Reconciler) noteFaults(ctx context.Context, faults []state.Fault) {
	isSame := slices.EqualFunc(r.State.Faults, faults,
		func(a, b state.Fault) bool { return a.IsSame(b) && a.CrashLooping == b.CrashLooping })
	r.State.Faults = faults
	if isSame {
		return
	}
	if err := r.State.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "what fails can't be written down")
	}
}

func (r *Reconciler) request(p *pass, whole bool) apply.Request {
	request := apply.Request{Scope: plan.Everything, Thorough: p.thorough, Whole: whole}
	if p.node != nil {
		request.Node = p.node.Object
	}
	return request
}

// rollBack makes the revision that held before the host's again, and notes why the one on trial can't
// be had. If that can't be written down, the failed one is still on trial in the file: a daemon
// that starts then tries it, and leaves it, once more. This one does not.
func (r *Reconciler) rollBack(ctx context.Context, why *contract.Problem, changed bool) {
	failed := r.State.Revision.Name
	logr.FromContextOrDiscard(ctx).Info("rolling back to what held", "failed", failed, "reason", why.Reason, "detail",
		why.Detail, "revision", r.State.Before.Name)
	r.State.Back()
	r.restart()
	r.announce()
	r.failures.note(ctx, failed, why, changed || r.Program.Replaces(r.State.Manifest))
}

// ended looks whether what was started for the revision on trial still runs, and gives the problem
// if not. A service that failed before it, too, tells nothing about it.
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

// finish notes that the state's revision holds. What can't be written down does not hold: another process would not
// see it.
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

// recovered says that the host has what failed before. While that is on trial the failure stands,
// so that the next pause is longer if it has to be left again. It may remain unverified for as long
// as something fails that failed before, too.
func (r *Reconciler) recovered(last *state.FailedRevision) bool {
	return last.Name == r.State.Revision.Name && (r.State.Verified || r.untilVerified() <= 0)
}
