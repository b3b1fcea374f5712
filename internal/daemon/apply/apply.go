package apply

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Registry is what containerd is sent to for its pulls.
type Registry interface {
	// Follow takes over what the cluster says about pulls, and gives the files by which containerd
	// finds its way. Repeating it changes nothing. With a problem, there may be files that count until
	// it is gone; without any, containerd is left to what it was told before.
	Follow(ctx context.Context, c contract.Confidential, environment map[string]string) ([]contract.File,
		*contract.Problem)
}

// Options of an Applier.
type Options struct {
	Host winos.Host
	// State is the host's state file.
	State *state.File
	// Registry serves containerd; without one, the files for it are left as they are.
	Registry Registry
	// Reach tries whether an API server answers, with a certificate of its CA; apiclient.Reach if nil.
	Reach func(ctx context.Context, to apiclient.Server) error
}

// Applier holds one host at its desired state. It is not for concurrent use.
type Applier struct {
	host     winos.Host
	state    *state.File
	registry Registry
	reach    func(ctx context.Context, to apiclient.Server) error
	store    *payload.Store
	digests  digests
	lives    lives
	repeats  repeats
	kept     kept
	waits    waits
	// sane are the processes that ran when their services were last configured as they should be.
	sane map[string]uint32
	// last is what the last Apply wanted, for QuickCheck.
	last plan.Desired
	// missing is since when the host was seen without the node's address, or zero.
	missing time.Time
	// resumed counts how often services of others did not start again.
	resumed map[string]int
	// boot is what bootID found.
	boot string
}

// New makes an Applier.
func New(o Options) *Applier {
	now := o.Host.System.Now
	if o.Reach == nil {
		o.Reach = func(ctx context.Context, to apiclient.Server) error { return apiclient.Reach(ctx, to, now) }
	}
	return &Applier{
		host: o.Host, state: o.State, registry: o.Registry, reach: o.Reach, store: payload.NewStore(o.Host.Files),
		sane:    map[string]uint32{},
		resumed: map[string]int{},
		digests: digests{files: o.Host.Files, now: now, known: map[string]seen{}},
		lives:   lives{now: now, of: map[string]*life{}},
		repeats: repeats{now: now, of: map[subject]*fight{}},
		kept:    kept{now: now, of: map[string]*denial{}},
	}
}

// Request says what to bring about.
type Request struct {
	Scope plan.Scope
	// Node is the Node in its unstructured form, or nil while it is not known.
	Node map[string]any
	// Thorough reads every file again, instead of trusting those whose size and time are as before.
	Thorough bool
	// Whole takes all steps or, if something can't be prepared, none, and stops at the first that
	// fails. Otherwise a step that fails keeps only those from being taken that need it.
	Whole bool
}

// Report is the outcome of a pass.
type Report struct {
	// Steps that were taken.
	Steps []plan.Step
	// Waiting is what is not known yet, Failed what could not be done, in order of importance.
	Waiting, Failed []*contract.Problem
	// Broken are those of Failed because of which programs may not run as they should: steps on
	// files, variables and services. The others are about what stands beside, such as certificates
	// and mirrors, and files that are no longer wanted.
	Broken []state.Fault
	// CrashLooping are those of Failed about services that start and do not stay up.
	CrashLooping []state.Fault
	// Kept is what somebody else keeps as it is, and Beside what goes wrong without the revision being concerned. They
	// are reported, and everything may hold all the same.
	Kept, Beside []*contract.Problem
	// Changed says that a step on files, variables or services was taken, or tried.
	Changed bool
	// Left says that steps were left for another pass: the host did not say what is there, something is not known yet
	// or is in the way, or what failed kept others from being taken.
	Left bool
}

// Holds says whether everything is as it must be.
func (r Report) Holds() bool { return len(r.Waiting)+len(r.Failed) == 0 }

// sort tells what will come by itself from what will not: a value that can't be used is a failure,
// not something to wait for.
func (r *Report) sort(unknown []*contract.Problem) {
	for _, p := range unknown {
		switch p.Reason {
		case contract.ReasonNetworkPending, contract.ReasonNodePending, contract.ReasonTokenPending:
			r.Waiting = append(r.Waiting, p)
		default:
			r.Failed = append(r.Failed, p)
		}
	}
}

// Note adds problems of what goes on beside a pass.
func (r *Report) Note(problems ...*contract.Problem) {
	for _, p := range problems {
		if p.Reason.IsBesideRevision() {
			r.Beside = append(r.Beside, p)
		} else {
			r.Failed = append(r.Failed, p)
		}
	}
}

func (r *Report) failed(problems ...*contract.Problem) { r.Failed = append(r.Failed, problems...) }

// Problem is the most important reason why not everything holds, or nil.
func (r Report) Problem() *contract.Problem {
	for _, p := range slices.Concat(r.Failed, r.Waiting) {
		return p
	}
	return nil
}

// Aside is the first problem of what goes on beside a pass, or nil.
func (r Report) Aside() *contract.Problem {
	for _, p := range r.Beside {
		return p
	}
	return nil
}

// Apply looks at the host, plans, and takes the steps. What is wanted is in the state file: the manifest, which must be
// valid, and its confidential part. While that part is not known, nothing is taken away.
func (a *Applier) Apply(ctx context.Context, request Request) Report {
	var report Report
	a.waits = waits{left: waitLimit}
	want := a.resolve(ctx, request, &report)
	a.last = want
	report.failed(want.Problems...)
	if request.Thorough {
		a.digests.forget()
	}
	have, err := a.observe(ctx, want)
	if err != nil {
		report.failed(contract.ProblemOf(contract.ReasonInternal, err))
		report.Left = true
		return report
	}
	if have.Roots == nil {
		report.failed(contract.NewProblem(contract.ReasonTrustFailed, "the root store can't be read"))
	}
	for _, path := range slices.Sorted(maps.Keys(have.Unreadable)) {
		report.failed(have.Unreadable[path])
		report.Broken = append(report.Broken, state.Fault{Problem: *have.Unreadable[path], About: path})
	}
	a.adopt(want, have)
	todo := plan.Diff(want, have, a.state.State)
	report.sort(todo.Waiting)
	report.failed(todo.Conflicts...)
	report.Left = len(todo.Waiting)+len(todo.Conflicts) > 0
	run := &run{
		Applier: a, want: want, have: have, whole: request.Whole, broken: map[string]bool{}, aside: map[string]string{},
		report: &report,
		log:    logr.FromContextOrDiscard(ctx),
	}
	run.take(ctx, todo.Steps)
	report.Kept = a.kept.giveUp(a.state, want.Roots)
	a.resume(ctx)
	if err = RemoveAside(a.host.Files, a.state); err != nil {
		report.failed(FileProblem(err))
	}
	report.failed(a.routes(ctx)...)
	report.CrashLooping = a.lives.crashLooping()
	for _, f := range report.CrashLooping {
		report.failed(&f.Problem)
	}
	report.failed(a.repeats.problems()...)
	return report
}

// isStateLost reports whether it is unknown who put in place what is there: until the first revision holds since the
// state file was lost.
func (a *Applier) isStateLost() bool {
	return a.state.Lost && !a.state.Verified && a.state.Before == nil
}

// adopt has files and variables that are in place as they should be count as ours while that is forgotten: such a
// revision most likely put them there, and otherwise nobody would ever take them away again. Later on, what is there
// already is somebody else's. Certificates are left alone: a cluster may want those that Windows itself brings. It is
// written at the end of the pass.
func (a *Applier) adopt(want plan.Desired, have plan.Observed) {
	if !a.isStateLost() {
		return
	}
	for _, f := range want.Files {
		if f.Waiting == nil && have.Digests[f.Path] == f.Digest {
			a.state.AddFile(f.Path)
		}
	}
	for name, value := range want.Environment {
		if is, there := variable(have.Environment, name); there && is == value {
			a.state.AdoptVariable(name)
		}
	}
}

// bootID is the present boot, which this process does not outlive; empty while it is not known.
func (a *Applier) bootID(ctx context.Context) string {
	if a.boot == "" {
		if facts, err := a.host.System.Facts(ctx); err == nil {
			a.boot = facts.BootID
		}
	}
	return a.boot
}

// resolve finds out what is wanted.
func (a *Applier) resolve(ctx context.Context, request Request, report *Report) plan.Desired {
	told := maps.Clone(a.state.HostValues)
	if told == nil {
		told = map[contract.Fact]string{}
	}
	told[contract.FactNodeIP], told[contract.FactSourceVIP] = a.nodeIP(ctx), a.state.SourceVIP
	facts := plan.HostFacts(ctx, a.host, a.state.Manifest.HNSNetwork(), told)
	in := plan.Input{
		Manifest: a.state.Manifest, Extra: a.state.Extra, Scope: request.Scope,
		Inherited: func(name string) bool {
			v, touched := a.state.Environment[name]
			return touched && v.IsInherited(a.bootID(ctx))
		},
		Node: plan.NodeFields(request.Node, a.state.NodeValues), Host: facts,
	}
	if c, err := a.state.ParseConfidential(); err == nil {
		in.Confidential = &c
	}
	if a.registry != nil && request.Scope == plan.Everything && in.Confidential != nil {
		files, problem := a.registry.Follow(ctx, *in.Confidential,
			contract.Environment(a.state.Manifest, *in.Confidential))
		if problem != nil {
			report.failed(problem)
		}
		if files != nil {
			if problem = removeStale(a.host.Files, files, a.state.Files); problem != nil {
				report.failed(problem)
			}
		}
		in.Registry = files
	}
	want := plan.Resolve(in)
	a.remember(facts)
	a.keepAddress(ctx, facts)
	if request.Scope == plan.Everything {
		a.state.AddNetwork(want.Network) // written with the steps that have it made
		if problem := a.reserved(ctx, facts); problem != nil {
			report.failed(problem)
		}
	}
	return want
}

// remember keeps the facts that name the Node. It is written with the next change of the
// state file.
func (a *Applier) remember(facts plan.Lookup[contract.Fact]) {
	for _, f := range plan.Naming() {
		if !plan.AsksFor(a.state.Manifest, f) || a.state.HostValues[f] != "" {
			continue
		}
		if value, problem := facts(f); problem == nil {
			if a.state.HostValues == nil {
				a.state.HostValues = map[contract.Fact]string{}
			}
			a.state.HostValues[f] = value
		}
	}
}

// routes has single addresses be reached the way that they must.
func (a *Applier) routes(ctx context.Context) (problems []*contract.Problem) {
	for _, to := range a.last.Routes {
		added, err := a.host.Routes.Ensure(ctx, to)
		if err != nil {
			problems = append(problems, contract.NewProblem(contract.ReasonRouteFailed, "adding a route to %s: %v", to,
				err))
		}
		if !added {
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("added a route", "to", to)
		// Noted afterwards, unlike all else: one that was there before is nobody's business, and
		// one of ours ends with the next boot anyway.
		a.state.AddRoute(to.String())
		if err = a.state.Save(); err != nil {
			problems = append(problems, FileProblem(err))
		}
	}
	return problems
}

// VerifyTime is how long a service that was started anew must run until it counts as one that
// starts: programs that refuse their configuration end within a second.
const VerifyTime = 2 * time.Second

// StayTime is how long a service has to be seen until it is known whether it stays up.
const StayTime = endsWindow

// Try begins a trial: what is started from now on is part of it.
func (a *Applier) Try() {
	for _, known := range a.lives.of {
		known.tried = false
	}
}

// Ended names the services of the last pass that we started in this trial, and that have ended since: before they were
// seen to run for VerifyTime, or again and again.
func (a *Applier) Ended(ctx context.Context) (names []string) {
	for _, s := range a.last.Services {
		if s.Waiting != nil {
			continue
		}
		if current, err := a.host.Services.Get(ctx, s.Name); err == nil && a.lives.failsTrial(s.Name, current) {
			names = append(names, s.Name)
		}
	}
	return names
}
