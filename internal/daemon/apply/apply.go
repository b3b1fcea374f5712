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

// Registry is the mirror that containerd uses for pulls.
type Registry interface {
	// Follow applies the cluster's settings for pulls and returns containerd's registry files. A second call with the
	// same settings changes nothing. Follow may return files together with a problem. These files apply until the
	// problem is fixed. If the files are nil, containerd's current files stay.
	Follow(ctx context.Context, c contract.Confidential, environment map[string]string) ([]contract.File,
		*contract.Problem)
}

// Options of an Applier.
type Options struct {
	Host  winos.Host
	State *state.File
	// Registry returns containerd's registry files. If it is nil, these files stay unchanged.
	Registry Registry
	// Reach checks that the CA in `to` has signed the API server's certificate. Default: apiclient.Reach.
	Reach func(ctx context.Context, to apiclient.Server) error
}

// Applier keeps one host in its desired state. It is not safe for concurrent use.
type Applier struct {
	host      winos.Host
	state     *state.File
	registry  Registry
	reach     func(ctx context.Context, to apiclient.Server) error
	store     *payload.Store
	digests   digests
	histories histories
	repeats   repeats
	// `sane` contains the process ID of each service at the time when the service's configuration was last correct.
	sane map[string]uint32
	// `last` is the desired state of the last Apply, for QuickCheck.
	last plan.Desired
	// `missing` is the time when the host first lacked the node's address, or zero while the host has the address.
	missing time.Time
	// `resumed` counts failed restarts of other vendors' services.
	resumed map[string]int
	boot    string
}

// New returns an Applier.
func New(o Options) *Applier {
	now := o.Host.System.Now
	if o.Reach == nil {
		o.Reach = func(ctx context.Context, to apiclient.Server) error { return apiclient.Reach(ctx, to, now) }
	}
	return &Applier{
		host: o.Host, state: o.State, registry: o.Registry, reach: o.Reach, store: payload.NewStore(o.Host.Files),
		sane:      map[string]uint32{},
		resumed:   map[string]int{},
		digests:   digests{files: o.Host.Files, now: now, known: map[string]seen{}},
		histories: histories{now: now, of: map[string]*history{}},
		repeats:   repeats{now: now, of: map[subject]*fight{}},
	}
}

// Request is the input of Apply.
type Request struct {
	// Revision is the desired state. It must be valid.
	Revision state.Revision
	Scope    plan.Scope
	// Node is the Node in unstructured form, or nil if it is unknown.
	Node map[string]any
	// Thorough makes Apply read every file again, even if its size and time are unchanged.
	Thorough bool
	// If Whole is true, Apply stops at the first failed step. It takes no step at all if a file can't be staged or the
	// steps can't be recorded. If Whole is false, a failed step prevents only the steps that depend on it.
	Whole bool
}

// Report is the result of Apply.
type Report struct {
	Steps []plan.Step
	// Waiting lists problems of values that aren't known yet. Failed lists all others. Both are sorted by importance.
	Waiting, Failed []*contract.Problem
	// Broken is the part of Failed that may keep programs from running correctly: steps on files, variables and
	// services. The rest of Failed is about certificates, mirrors and files that are no longer needed.
	Broken []state.Fault
	// CrashLooping is the part of Failed about services that are in a crash loop.
	CrashLooping []state.Fault
	// Beside lists problems that don't concern the revision. They are reported, but don't prevent its verification.
	Beside []*contract.Problem
	// Changed reports that a step on files, variables or services was tried.
	Changed bool
	// Left reports that steps remain for a later pass: the host couldn't be read, a fact is unknown, something blocks a
	// step, or an earlier step failed.
	Left bool
}

// Holds reports whether the host is in its desired state.
func (r Report) Holds() bool { return len(r.Waiting)+len(r.Failed) == 0 }

// `sort` adds each problem of an unknown value to Waiting if the value may become known later, otherwise to Failed.
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

// Note adds problems of background tasks.
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

// Problem returns the most important reason why the host isn't in its desired state, or nil.
func (r Report) Problem() *contract.Problem {
	for _, p := range slices.Concat(r.Failed, r.Waiting) {
		return p
	}
	return nil
}

// Apply observes the host, plans steps, and takes them.
func (a *Applier) Apply(ctx context.Context, request Request) Report {
	var report Report
	want, err := a.resolve(ctx, request, &report)
	if err != nil {
		report.failed(contract.ProblemOf(contract.ReasonManifestInvalid, err))
		report.Left = true
		return report
	}
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
	todo := plan.Diff(want, have, a.state.Changes)
	report.sort(todo.Waiting)
	report.failed(todo.Conflicts...)
	report.Left = len(todo.Waiting)+len(todo.Conflicts) > 0
	run := &run{
		Applier: a, want: want, have: have, whole: request.Whole, broken: map[string]bool{}, aside: map[string]string{},
		report: &report,
		log:    logr.FromContextOrDiscard(ctx),
	}
	run.take(ctx, todo.Steps)
	a.resume(ctx)
	if err = RemoveAside(a.host.Files, a.state); err != nil {
		report.failed(FileProblem(err))
	}
	report.failed(a.routes(ctx)...)
	report.CrashLooping = a.histories.crashLooping()
	for _, f := range report.CrashLooping {
		report.failed(&f.Problem)
	}
	report.failed(a.repeats.problems()...)
	return report
}

// bootID returns the ID of this boot, or "" while it is unknown. The ID is cached, because a boot ends this process.
func (a *Applier) bootID(ctx context.Context) string {
	if a.boot == "" {
		if facts, err := a.host.System.Facts(ctx); err == nil {
			a.boot = facts.BootID
		}
	}
	return a.boot
}

// resolve determines the desired state. To determine some values, it changes the host: it gives the mirror resolver its
// rules, removes containerd's obsolete files for registries, and reserves the source address of the overlay network.
func (a *Applier) resolve(ctx context.Context, request Request, report *Report) (plan.Desired, error) {
	confidential, err := contract.ParseConfidential(request.Revision.Confidential, request.Revision.Manifest)
	if err != nil {
		return plan.Desired{}, err
	}
	values := maps.Clone(a.state.HostValues)
	if values == nil {
		values = map[contract.Fact]string{}
	}
	values[contract.FactNodeIP], values[contract.FactSourceVIP] = a.nodeIP(ctx), a.state.SourceVIP
	m := request.Revision.Manifest
	in := plan.Input{
		Manifest: m, Confidential: confidential, Scope: request.Scope,
		Inherited: func(name string) bool {
			v, touched := a.state.Environment[name]
			return touched && v.IsInherited(a.bootID(ctx))
		},
		Node: plan.NodeFields(request.Node, a.state.NodeValues),
		Host: plan.HostFacts(ctx, a.host, m.HNSNetwork(), values),
	}
	if a.registry != nil && request.Scope == plan.Everything {
		files, problem := a.registry.Follow(ctx, confidential, contract.Environment(m, confidential))
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
	a.remember(want.Facts)
	a.keepAddress(ctx, want.Facts[contract.FactNodeIP])
	if request.Scope == plan.Everything {
		a.state.Networks.Add(want.Network) // saved when the steps are recorded
		if address := want.Facts[contract.FactSourceVIP]; address != "" {
			a.state.SourceVIP = address
			if problem := a.reserve(ctx, want.Network, address); problem != nil {
				report.failed(problem)
			}
		}
	}
	return want, nil
}

// remember stores in the state the facts that can determine the Node's name. The next Save writes them to the file.
func (a *Applier) remember(facts map[contract.Fact]string) {
	for _, f := range plan.Naming() {
		if facts[f] == "" || a.state.HostValues[f] != "" {
			continue
		}
		if a.state.HostValues == nil {
			a.state.HostValues = map[contract.Fact]string{}
		}
		a.state.HostValues[f] = facts[f]
	}
}

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
		// Record a route only after Ensure has added it, because a route that existed before isn't ours. All other
		// objects are recorded before the change. A route without a record does no harm: it disappears with the next
		// boot.
		a.state.Routes.Add(to.String())
		if err = a.state.Save(); err != nil {
			problems = append(problems, FileProblem(err))
		}
	}
	return problems
}

// VerifyTime is how long a restarted service must run. Programs that refuse their configuration end within a second.
const VerifyTime = 2 * time.Second

// StayTime is how long a service must be observed before the daemon rules out a crash loop.
const StayTime = endsWindow

// Try starts a trial. Services that are started after this call are part of the trial.
func (a *Applier) Try() {
	for _, known := range a.histories.of {
		known.tried = false
	}
}

// Ended returns the services that we started in this trial and that have failed since then: they ended before they had
// run for VerifyTime, or they ended repeatedly.
func (a *Applier) Ended(ctx context.Context) (names []string) {
	for _, s := range a.last.Services {
		if s.Waiting != nil {
			continue
		}
		if current, err := a.host.Services.Get(ctx, s.Name); err == nil && a.histories.failsTrial(s.Name, current) {
			names = append(names, s.Name)
		}
	}
	return names
}
