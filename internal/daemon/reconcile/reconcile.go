package reconcile

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Options of a Reconciler.
type Options struct {
	Host winos.Host
	// State is the host's state file. No other process writes it while the Reconciler runs.
	State *state.File
	// Client connects to the API server as this node's daemon. If it is nil, the host stays at its revision.
	Client dynamic.Interface
	// Kubeconfig is the daemon's kubeconfig. Services with a token get the API server's address and CA from it.
	Kubeconfig string
	// NodeName is the name of the daemon's own Node. Namespace is the namespace of the manifests.
	NodeName, Namespace string
	// Registry returns containerd's registry files. If it is nil, these files stay unchanged.
	Registry apply.Registry
	// Program is the daemon's own program. If it is nil, the daemon never replaces its program.
	Program *selfupdate.Program
	// CertificateEnd returns when Client's certificate expires. It is nil if Client has no certificate.
	CertificateEnd func() time.Time
	// Source creates a payload source from the published URLs and CAs (PEM). If it is nil, nothing is fetched.
	Source func(urls []string, ca []byte) (payload.Source, error)
	// Trust, if set, makes this daemon and its later processes verify the API server with the CA bundle `ca`. If the
	// result `settled` is false, the daemon still trusts the previous bundle, and Trust must be called again. `next` is
	// true if the bundle's revision is not the host's revision yet.
	Trust func(ctx context.Context, ca []byte, next bool) (settled bool, err error)
	// Reach is passed to apply.Options.
	Reach func(ctx context.Context, to apiclient.Server) error
	// Follow, if set, is called with the host's manifest at the start, and with each new manifest of the host.
	Follow func(contract.Manifest)
	// Report, if set, is called with the result of each pass.
	Report    func(contract.Reconciled)
	Intervals Intervals
	// Clock measures pauses. If it is nil, the real clock is used.
	Clock clock.Clock
}

// Reconciler reconciles one host. Only the goroutine that calls Run may use the fields. Background goroutines (watches,
// staging, reboots) have their own state and wake Run through a channel.
type Reconciler struct {
	Options
	applier   *apply.Applier
	node      *apiclient.Watch
	revisions *revisions
	failures  *failures
	supply    *supply
	status    *status
	sweeper   *sweeper
	tokens    tokens
	pauses    pauses
	trial     onTrial
	started   time.Time
	seen      inputs
	// `next` is the time of the next check. At time fullPass, a full pass is due, even without changes.
	next, fullPass time.Time
	// wake is signalled when a watch sees a change, or when a background goroutine has a result.
	wake   chan struct{}
	beside sync.WaitGroup
}

// ErrReleased means that the operator has released this host, so the daemon must clean it up.
var ErrReleased = errors.New("the operator has released the host; the daemon cleans it")

// New returns a Reconciler.
func New(options Options) *Reconciler {
	options.Intervals = options.Intervals.withDefaults()
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Program == nil {
		options.Program = selfupdate.New(options.Host, options.State, "")
	}
	o := options
	store := payload.NewStore(o.Host.Files)
	r := &Reconciler{
		Options: o, wake: make(chan struct{}, 1),
		applier:  apply.New(apply.Options{Host: o.Host, State: o.State, Registry: o.Registry, Reach: o.Reach}),
		failures: newFailures(o.State, o.Intervals, o.Clock),
		supply:   &supply{store: store},
		sweeper:  &sweeper{files: o.Host.Files, state: o.State, store: store, clock: o.Clock, now: o.Host.System.Now},
		pauses:   pauses{intervals: o.Intervals, clock: o.Clock},
	}
	r.revisions = &revisions{
		client: o.Client, namespace: o.Namespace, state: o.State, program: o.Program, latest: latest{clock: o.Clock},
		serverCA: serverCA{trust: o.Trust, clock: o.Clock, intervals: o.Intervals},
	}
	r.tokens = newTokens(o, r.wake)
	r.status = &status{client: o.Client, state: o.State, clock: o.Clock, intervals: o.Intervals}
	return r
}

// Run reconciles the host until ctx ends, and then returns nil. If a new program of the daemon was installed, Run
// returns selfupdate.ErrReplaced, and this process must exit. If the operator has released the host, Run returns
// ErrReleased. Run returns after its background goroutines have ended.
func (r *Reconciler) Run(ctx context.Context) error {
	logr.FromContextOrDiscard(ctx).Info("reconciling", "node", r.NodeName, "revision", r.State.Revision.Name, "held",
		r.State.Verified)
	ctx, stop := context.WithCancel(ctx)
	defer r.beside.Wait()
	defer stop()
	r.started = r.Clock.Now()
	r.trial = onTrial{since: r.started, unreadable: r.understand()}
	if r.trial.unreadable == nil {
		r.announce()
	}
	r.Program.Tidy(ctx)
	if r.Client != nil {
		r.node = r.watch(ctx, r.Client.Resource(nodes), r.NodeName)
		r.startBeside(ctx)
	}
	for due := true; ctx.Err() == nil; {
		if r.released() {
			return ErrReleased
		}
		r.watchLatest(ctx)
		r.reconcile(ctx, due)
		if r.trial.isReplaced {
			return selfupdate.ErrReplaced
		}
		due = loop.Wait(ctx, r.Clock, r.wake, r.next.Sub(r.Clock.Now()))
	}
	return nil
}

// `released` reports whether the operator has released the host: the Node has no instance annotation, and its released
// annotation equals the expiry time of this daemon's certificate. If the Node is missing or can't be read, `released`
// returns false.
func (r *Reconciler) released() bool {
	node, _ := r.node.Get()
	if node == nil || r.CertificateEnd == nil {
		return false
	}
	annotations := node.GetAnnotations()
	return annotations[contract.InstanceAnnotation] == "" &&
		annotations[contract.ReleasedAnnotation] == r.CertificateEnd().UTC().Format(time.RFC3339)
}

func (r *Reconciler) startBeside(ctx context.Context) {
	b := &reboots{
		system: r.Host.System, client: r.Client, node: r.node, clock: r.Clock, intervals: r.Intervals,
		certificateEnd: r.CertificateEnd, problem: &r.status.reboot, changed: r.wake,
	}
	r.beside.Go(func() { b.run(ctx) })
	for _, t := range r.tokens {
		t.node = r.node
		r.beside.Go(func() { t.run(ctx) })
	}
	if r.Source == nil {
		return
	}
	r.supply.stager = payload.NewStager(payload.StagerOptions{
		Host: r.Host, Client: r.Client, Node: r.node, Namespace: r.Namespace, Source: r.Source, Clock: r.Clock,
		Fetched: func() {
			r.supply.arrived.Store(true)
			loop.Signal(r.wake)
		},
	})
	r.beside.Go(func() { r.supply.stager.Run(ctx) })
}

func (r *Reconciler) watch(ctx context.Context, client dynamic.ResourceInterface, name string) *apiclient.Watch {
	w := apiclient.NewWatch(client, name, r.Clock)
	w.Wake(r.wake)
	r.beside.Go(func() { w.Run(ctx) })
	return w
}

// watchLatest starts the watch of the newest revision's Secret, once the watch of the Node has an answer.
func (r *Reconciler) watchLatest(ctx context.Context) {
	if _, answers := r.node.Get(); !answers || r.revisions.latest.watch != nil {
		return
	}
	r.revisions.latest.watch = r.watch(ctx, r.Client.Resource(secrets).Namespace(r.Namespace), contract.LatestSecret)
}

// inputs are the values outside the host that decide whether a pass is needed. Most updates of a Node (heartbeats,
// images) change none of them.
type inputs struct {
	exists                    bool
	desired, revision, status string
	manifest, candidate       string
	values                    map[string]string
	// problem has no text: the text of an error may contain a port that differs each time.
	problem contract.Reason
	reboot  contract.Problem
	// token increases with each written token and with each change of a token's problem.
	token int64
}

// reconcile runs a pass if one is needed, and sets the time of the next check. If `due` is true, the time of the
// planned check has come. If `due` is false, a watch or another goroutine has woken the loop.
func (r *Reconciler) reconcile(ctx context.Context, due bool) {
	node, _ := r.node.Get()
	c, problem := r.choose(ctx, node, due)
	r.revisions.serverCA.trustRevision(ctx, c, r.State.Revision)
	if r.revisions.latest.isAwaited {
		r.next = r.revisions.latest.until
		return
	}
	now := r.inputs(ctx, node, c, problem)
	changed := !reflect.DeepEqual(now, r.seen) || r.supplied(c)
	reason := r.reasonForPass(c, changed)
	if reason == "" && due {
		reason = r.reasonToLook(ctx)
	}
	if reason == "" {
		if due {
			r.next = r.Clock.Now().Add(r.Intervals.QuickCheck)
		}
		return
	}
	logr.FromContextOrDiscard(ctx).V(1).Info("making a pass", "because", reason)
	// Another client set or removed the Node's revision annotation, so verify everything.
	thorough := now.exists && r.seen.exists && now.revision != r.seen.revision
	r.seen = now
	report := r.pass(ctx, pass{node: node, candidate: c, thorough: thorough})
	if r.trial.isReplaced {
		return // the new program reports the result
	}
	problem = cmp.Or(problem, r.failures.fetchProblem(r.supply.fetch(r.State.State, c, report)))
	pause := r.report(ctx, node, report, problem, changed)
	// The pass itself changes some inputs. Only changes by others may cause another pass.
	r.seen.manifest = r.State.Revision.Name
	r.next = r.Clock.Now().Add(pause)
}

// reasonForPass returns why a pass must run now. It returns an empty string if there is no reason.
func (r *Reconciler) reasonForPass(c *state.Revision, changed bool) string {
	switch {
	case changed:
		return "something changed"
	case r.failures.mayTry(c):
		return "another revision may be tried"
	}
	return ""
}

// reasonToLook returns why a periodic check must run a pass although no input has changed, or an empty string.
func (r *Reconciler) reasonToLook(ctx context.Context) string {
	switch {
	case !r.State.Verified && r.State.Before != nil && !r.trial.isApplied:
		return "not all steps of the revision were taken"
	case !r.trial.verifyDue.IsZero():
		return "what the revision started is being verified"
	case !r.pauses.resting():
		return "something fails, or is awaited"
	case r.status.isOwing():
		return "the Node does not show everything yet"
	case !r.Clock.Now().Before(r.fullPass):
		return "the last pass was long ago"
	case r.applier.QuickCheck(ctx):
		return "the host is not as it was"
	}
	return ""
}

// inputs collects the current inputs. It also stores values of the Node: see remember.
func (r *Reconciler) inputs(ctx context.Context, node *unstructured.Unstructured, c *state.Revision,
	problem *contract.Problem) inputs {
	now := inputs{manifest: r.State.Revision.Name, values: r.remember(ctx, node), token: r.tokens.count()}
	if node != nil {
		a := node.GetAnnotations()
		now.exists, now.desired, now.revision, now.status = true, a[contract.DesiredRevisionAnnotation],
			a[contract.RevisionAnnotation], a[contract.ApplyStatusAnnotation]
	}
	if c != nil {
		now.candidate = c.Name
	}
	now.problem = ptr.Deref(problem, contract.Problem{}).Reason
	now.reboot = ptr.Deref(r.status.reboot.Load(), contract.Problem{})
	return now
}

// report records and publishes the result of a pass, and returns the time until the next check.
func (r *Reconciler) report(ctx context.Context, node *unstructured.Unstructured, report apply.Report,
	problem *contract.Problem, changed bool) time.Duration {
	if ctx.Err() != nil {
		return r.Intervals.QuickCheck
	}
	log := logr.FromContextOrDiscard(ctx)
	if dropped, err := DropBootstrapCredential(r.Host.Files, r.NodeName, r.Host.System.Now()); err != nil {
		report.Failed = append(report.Failed, contract.NewProblem(contract.ReasonFileFailed, "%v", err))
	} else if dropped {
		log.Info("kubelet has its own certificate; its bootstrap credential is deleted")
	}
	verification := time.Duration(0)
	if report.Holds() {
		verification = r.untilVerified()
	}
	report.Note(r.tokens.problems()...)
	if refused := r.status.reboot.Load(); refused != nil {
		report.Note(refused)
	}
	if node != nil {
		if unwritten := r.Program.Accept(r.Clock.Since(r.started)); unwritten != nil {
			report.Waiting = append(report.Waiting, unwritten)
		}
	}
	if last := r.State.Failed; last != nil {
		if node != nil && (desired(node) != last.Name || r.recovered(last)) {
			r.failures.clear(ctx)
		} else {
			report.Failed = slices.Concat([]*contract.Problem{last.Problem}, report.Failed)
		}
	}
	if problem != nil {
		report.Failed = slices.Concat([]*contract.Problem{problem}, report.Failed)
	}
	r.tell(ctx, node, report)
	if report.Holds() && r.revisions.last == nil {
		r.sweeper.sweep(ctx, r.supply.stager)
	}
	r.fullPass = r.Clock.Now().Add(loop.Jitter(r.Intervals.Resync))
	pause := r.pauses.next(report, changed)
	if verification > 0 {
		pause = min(pause, verification)
	}
	if sooner := r.publish(ctx, node, report); sooner > 0 {
		pause = min(pause, sooner)
	}
	return r.failures.untilNextTry(pause)
}

// publish writes the state of the host to the Node. It returns the delay until the next call, or 0 for no call.
func (r *Reconciler) publish(ctx context.Context, node *unstructured.Unstructured,
	report apply.Report) time.Duration {
	again, after := r.status.publish(ctx, r.node, node, report, r.pauses.waitsSince)
	if after != nil { // the daemon's own write must not cause a pass
		r.seen.revision, r.seen.status = after[contract.RevisionAnnotation], after[contract.ApplyStatusAnnotation]
	}
	return again
}

// `desired` returns the name of the revision that a Node's annotation asks for. If node is nil, the result is empty.
func desired(node *unstructured.Unstructured) string {
	if node == nil {
		return ""
	}
	return node.GetAnnotations()[contract.DesiredRevisionAnnotation]
}

// remember returns the Node's values that the manifest uses, and stores them for times without an API server.
func (r *Reconciler) remember(ctx context.Context, node *unstructured.Unstructured) map[string]string {
	paths := plan.NodePaths(r.State.Manifest)
	values := make(map[string]string, len(paths))
	var object map[string]any
	if node != nil {
		object = node.Object
	}
	look := plan.NodeFields(object, r.State.NodeValues)
	for _, p := range paths {
		if value, problem := look(p); problem == nil {
			values[string(p)] = value
		}
	}
	if !maps.Equal(values, r.State.NodeValues) {
		r.State.NodeValues = values
		if err := r.State.Save(); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "the Node's values can't be recorded")
		}
	}
	return values
}

func (r *Reconciler) announce() {
	r.tokens.setWanted(r.State.Manifest)
	if r.Follow != nil {
		r.Follow(r.State.Manifest)
	}
}
