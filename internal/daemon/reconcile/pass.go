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
// The state file says at every moment which one is tried and which one held before, so a daemon
// that dies anywhere goes on from there.

// pass is what one pass is made from.
type pass struct {
	node *unstructured.Unstructured
	// candidate is what the Node names and the host is not brought to, or nil.
	candidate *state.Revision
	// thorough reads every file again.
	thorough bool
}

// trial is what is known of the revision on trial, beside what the state file says.
type trial struct {
	// verifyDue is when what was started by it has run long enough, or zero.
	verifyDue time.Time
	// changed says that it has changed something on the host, hampered that something fails in it that failed before:
	// that is not waited for.
	changed, hampered bool
	// before is what failed already before it was tried, at a revision that was not on trial.
	before []state.Fault
	// since is when services may have been started otherwise than before, or were first seen: when this
	// daemon began, and when the host was given another revision.
	since time.Time
	// unsure says that the state's revision was not (wholly) understood, since unsureSince, and has
	// to be read again.
	unsure      bool
	unsureSince time.Time
}

// excuses says whether a fault is none of the revision on trial.
func (t *trial) excuses(fault state.Fault) bool { return slices.ContainsFunc(t.before, fault.IsSame) }

// restart forgets what is known of the host's revision: another one is it now.
func (t *trial) restart(now time.Time, applier *apply.Applier) {
	*t = trial{before: t.before, since: now}
	applier.Try()
}

func (t *trial) doubt(unsure bool, now time.Time) { t.unsure, t.unsureSince = unsure, now }

// pass goes from phase to phase until nothing is left to do for now, and gives the report of the
// last look at the host.
func (r *Reconciler) pass(ctx context.Context, p pass) apply.Report {
	for {
		report, e := r.step(ctx, p)
		if e == none {
			return report
		}
		r.machine.on(logr.FromContextOrDiscard(ctx), e)
		switch e {
		case accepted:
			p.candidate = nil
		case failed:
			// Something newer may be named by now: then there is no need to go back first.
			p.node, _ = r.node.Get()
			p.candidate, _ = r.choose(ctx, p.node)
			p.thorough = false
		default:
			return report
		}
	}
}

// step does what the present phase has to be done.
func (r *Reconciler) step(ctx context.Context, p pass) (apply.Report, event) {
	if r.machine.phase == Applying || r.machine.phase == Verifying {
		if why := r.ended(ctx); why != nil {
			r.fail(ctx, why, true)
			return apply.Report{}, failed
		}
	}
	var lacking *contract.Problem
	if r.failures.mayTry(p.candidate) {
		if lacking = r.supply.lacks(p.candidate); lacking == nil && r.accept(ctx, p.candidate) {
			return apply.Report{}, accepted
		}
	}
	if r.isUnread() {
		report := apply.Report{}
		if lacking != nil {
			report.Waiting = append(report.Waiting, lacking)
		}
		return report, none
	}
	bring := r.repair
	if r.machine.phase == Applying {
		bring = r.apply
	}
	report, e := bring(ctx, p)
	if lacking != nil {
		report.Waiting = append(report.Waiting, lacking)
	}
	return report, e
}

// accept makes a candidate the host's revision, on trial. If that can't be, nothing has changed.
func (r *Reconciler) accept(ctx context.Context, c *state.Revision) bool {
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
		return false
	}
	logr.FromContextOrDiscard(ctx).Info("trying a revision", "revision", c.Name, "before", before)
	r.revisions.last = nil
	r.identity = identity{}
	r.trial.restart(r.Clock.Now(), r.applier)
	if !r.Program.Replaces(r.State.Manifest) {
		r.announce()
	}
	return true
}

// apply tries the state's revision as a whole.
func (r *Reconciler) apply(ctx context.Context, p pass) (apply.Report, event) {
	back := r.State.Before != nil
	if r.Program.Replaces(r.State.Manifest) {
		problem := r.Program.Replace(ctx)
		switch {
		case problem == nil:
			return apply.Report{}, replaced
		case ctx.Err() != nil || !back:
			return apply.Report{Failed: []*contract.Problem{problem}}, none
		}
		r.fail(ctx, problem, false)
		return apply.Report{}, failed
	}
	r.remember(ctx, p.node)
	report := r.applier.Apply(ctx, r.request(p, back && !r.trial.hampered))
	switch {
	case ctx.Err() != nil:
		return report, none
	case !back:
		return report, applied
	}
	if started(report) {
		r.trial.verifyDue = r.Clock.Now().Add(apply.VerifyTime)
	}
	r.trial.changed = r.trial.changed || report.Changed
	r.trial.hampered = len(report.Broken) > 0
	fresh := slices.IndexFunc(report.Broken, func(f state.Fault) bool { return !r.trial.excuses(f) })
	switch {
	case fresh >= 0:
		r.fail(ctx, &report.Broken[fresh].Problem, r.trial.changed)
		return report, failed
	case report.Left:
		return report, none
	}
	return report, applied
}

func started(report apply.Report) bool {
	return slices.ContainsFunc(report.Steps, func(s plan.Step) bool { return s.Kind == plan.StartService })
}

// repair makes a pass at the state's revision, in which what fails keeps nothing else back.
func (r *Reconciler) repair(ctx context.Context, p pass) (apply.Report, event) {
	r.remember(ctx, p.node)
	report := r.applier.Apply(ctx, r.request(p, false))
	// What fails at a revision on trial may be its own fault: it excuses none that follows.
	if r.machine.phase != Verifying && ctx.Err() == nil {
		r.trial.before = slices.Concat(report.Broken, report.CrashLooping,
			r.trial.unjudged(report.CrashLooping, r.Clock.Now()))
		noteFaults(ctx, r.State, r.trial.before)
	}
	if r.Program.ReplacedBy(report) {
		return report, replaced
	}
	return report, none
}

// unjudged are the services that did not stay up before and were not seen for long enough since to
// say more. Each daemon counts ends anew, and each start with something else begins anew, too.
func (t *trial) unjudged(seen []state.Fault, now time.Time) []state.Fault {
	if now.Sub(t.since) >= apply.StayTime {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(t.before), func(f state.Fault) bool {
		return !f.CrashLooping || slices.ContainsFunc(seen, f.IsSame)
	})
}

// noteFaults writes down what fails at a revision that is not on trial, for the next daemon.
func noteFaults(ctx context.Context, file *state.File, faults []state.Fault) {
	if slices.EqualFunc(file.Faults, faults, func(a, b state.Fault) bool {
		return a.IsSame(b) && a.CrashLooping == b.CrashLooping
	}) {
		return
	}
	if err := file.Change(func() error { file.Faults = faults; return nil }); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "what fails can't be written down")
	}
}

func (r *Reconciler) request(p pass, whole bool) apply.Request {
	request := apply.Request{Scope: plan.Everything, Thorough: p.thorough, Whole: whole}
	if p.node != nil {
		request.Node = p.node.Object
	}
	return request
}

// fail makes the revision that held before the host's again, and notes why the one on trial can't
// be had. If that can't be written down, the failed one is still on trial in the file: a daemon
// that starts then tries it, and leaves it, once more. This one does not.
func (r *Reconciler) fail(ctx context.Context, why *contract.Problem, changed bool) {
	failed := r.State.Revision.Name
	logr.FromContextOrDiscard(ctx).Info("rolling back to what held", "failed", failed, "reason", why.Reason, "detail",
		why.Detail, "revision", r.State.Before.Name)
	r.State.Back()
	r.identity = identity{}
	r.trial.restart(r.Clock.Now(), r.applier)
	r.announce()
	r.failures.note(ctx, failed, why, changed || r.Program.Replaces(r.State.Manifest))
}

// ended looks whether what was started for the revision on trial still runs, and gives the problem
// if not. A service that failed before it, too, tells nothing about it.
func (r *Reconciler) ended(ctx context.Context) *contract.Problem {
	if r.State.Before == nil || r.trial.verifyDue.IsZero() {
		return nil
	}
	ended := slices.DeleteFunc(r.applier.Ended(ctx), func(name string) bool {
		return r.trial.excuses(apply.CrashLooping(name))
	})
	if len(ended) == 0 {
		return nil
	}
	return contract.NewProblem(contract.ReasonServiceFailed, "service %s ended right after its start, or repeatedly",
		strings.Join(ended, ", "))
}

// settle notes that the state's revision holds, as soon as it does, and gives how long its verification
// still takes. What can't be written down is not verified: another process would not see it.
func (r *Reconciler) settle(ctx context.Context, report apply.Report) (time.Duration, *contract.Problem) {
	if !report.Holds() || r.isUnread() || r.machine.phase != Verifying && r.machine.phase != RollingBack {
		return 0, nil
	}
	if left := r.trial.verifyDue.Sub(r.Clock.Now()); !r.trial.verifyDue.IsZero() && left > 0 {
		return left, nil
	}
	// A state file that was lost names nothing to go back to.
	verifies := !r.State.Verified && r.State.Revision.Name != ""
	faults := r.trial.unjudged(report.CrashLooping, r.Clock.Now())
	if err := r.State.Change(func() error {
		if verifies {
			r.State.Verified, r.State.Failed, r.State.Faults = true, nil, faults
		}
		return nil
	}); err != nil {
		return 0, apply.FileProblem(err)
	}
	if verifies {
		r.failures.last, r.trial.before = nil, faults
	}
	r.trial.verifyDue = time.Time{}
	logr.FromContextOrDiscard(ctx).Info("the revision holds", "revision", r.State.Revision.Name)
	r.machine.on(logr.FromContextOrDiscard(ctx), held)
	return 0, nil
}

// recovered says that the host has what failed before. While that is on trial the failure stands,
// so that the next pause is longer if it has to be left again. It may remain unverified for as long
// as something fails that failed before, too.
func (r *Reconciler) recovered(last *failure) bool {
	return last.revision == r.State.Revision.Name && (r.State.Verified || !r.Clock.Now().Before(r.trial.verifyDue))
}
