package reconcile

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/sealed"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Intervals says how often things are looked at.
type Intervals struct {
	// Glance lies between quick looks at service states, file sizes and the environment; 10 s if 0.
	Glance time.Duration
	// Resync lies between full passes while everything holds, give or take a fifth; 2 min if 0.
	Resync time.Duration
	// Waiting is the first pause after a pass that waits for a fact that no event announces, such
	// as the overlay network; it grows to WaitingLimit. 1 s and 15 s if 0.
	Waiting, WaitingLimit time.Duration
	// Failing is the first pause after a pass that failed; it doubles up to FailingLimit. 5 s and 1
	// min if 0.
	Failing, FailingLimit time.Duration
	// Refused is the first pause before a desired state is tried again that had to be left; it
	// doubles up to RefusedLimit. 1 min and 20 min if 0.
	Refused, RefusedLimit time.Duration
	// Status is the shortest time between two writes of the apply-status annotation; 5 s if 0.
	Status time.Duration
	// Settle is how long something is awaited before the Node says so; 3 s if 0. Most waits of a
	// join are over by then.
	Settle time.Duration
}

func (p Intervals) withDefaults() Intervals {
	for value, fallback := range map[*time.Duration]time.Duration{
		&p.Glance: 10 * time.Second, &p.Resync: 2 * time.Minute, &p.Waiting: time.Second,
		&p.WaitingLimit: 15 * time.Second,
		&p.Failing:      5 * time.Second, &p.FailingLimit: time.Minute, &p.Status: 5 * time.Second,
		&p.Settle:  3 * time.Second,
		&p.Refused: time.Minute, &p.RefusedLimit: 20 * time.Minute,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	return p
}

// Options of a Tender.
type Options struct {
	Host winos.Host
	// Book is the host's ledger; nobody else writes it meanwhile.
	Book *state.File
	// Client speaks to the API server as this node's daemon. Without one, the host is held at what
	// was last known.
	Client dynamic.Interface
	// NodeName is the own Node, Namespace where the manifests are.
	NodeName, Namespace string
	// Registry serves containerd. Without one, its files are left as they are.
	Registry apply.Registry
	// Program is the digest of the exe that this process runs, if it is the one at
	// contract.PathDaemon; otherwise empty, and the daemon is not exchanged.
	Program string
	// CertificateEnd tells when the certificate ends with which Client speaks; nil when there is
	// nothing to tell.
	CertificateEnd func() time.Time
	// Source makes a source of payload of the addresses and certificates (PEM) that the operator
	// published. Without it, nothing is fetched.
	Source func(urls []string, ca []byte) (payload.Source, error)
	// Follow, if set, is told each manifest that the host is brought to, and the present one at the
	// start.
	Follow func(contract.Manifest)
	Pace   Intervals
	// Clock for pauses; the real one if nil.
	Clock clock.Clock
}

// Reconciler tends one host.
type Reconciler struct {
	Options
	keeper *apply.Applier
	vault  *sealed.Store
	store  *payload.Store
	node   *apiclient.Watch
	stager *payload.Stager
	// confidential belongs to the ledger's manifest; nil while it is not known, or when there is
	// none.
	confidential *contract.Confidential
	// last is what present found out.
	last identified
	// wished is what the Node asks for and the host is not brought to; refused is what could not be
	// had.
	wished  *candidate
	refused *failedRevision
	// attempting says that the ledger's desired state is still to be tried as a whole; began is
	// when that began, and proofDue when what was started by it has run long enough.
	attempting      bool
	began, proofDue time.Time
	// exchanged says that another exe lies where this process was started from: it is to end, so
	// that the service manager starts that one. tried is the digest of an exe that was seen to run
	// on this host.
	exchanged bool
	tried     string
	// since is when this daemon began to tend.
	since time.Time
	// unsure says that the ledger's desired state is not (wholly) known, since unsureSince, and has
	// to be read again.
	unsure      bool
	unsureSince time.Time
	// arrived says that fetching what was lacking has come to an end.
	arrived atomic.Bool
	// standing is what failed already before something was tried.
	standing []*contract.Problem
	// unread is why a Secret could not be read; it is read again at readAgain, after reading.
	unread    *contract.Problem
	readAgain time.Time
	reading   time.Duration
	// swept is when what nobody needs was last removed.
	swept time.Time
	// manifest is the watch of the ConfigMap of a version that the Node asks for, until that is
	// known.
	manifest        *apiclient.Watch
	manifestVersion string
	stopManifest    context.CancelFunc
	// wake is signalled when a watch saw something.
	wake chan struct{}
	// seen is what the last pass was made from.
	seen inputs
	// pauses of the present row of failures, of waiting, or of writes to the Node that failed.
	failing, waiting, unsaid time.Duration
	// waitsSince is when the present wait began.
	waitsSince time.Time
	// saidAt is when the apply-status annotation was last written.
	saidAt time.Time
	// next is when to look again, fullPass when a full pass is due although nothing seems to have
	// changed.
	next, fullPass time.Time
	watches        sync.WaitGroup
}

// New makes a Tender.
func New(options Options) *Reconciler {
	options.Pace = options.Pace.withDefaults()
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Reconciler{
		Options: options, vault: sealed.New(options.Host), store: payload.NewStore(options.Host.Files),
		wake: make(chan struct{}, 1), stopManifest: func() {},
		keeper:     apply.New(apply.Options{Host: options.Host, Book: options.Book, Registry: options.Registry}),
		attempting: !options.Book.Proven && options.Book.Before != nil,
		refused:    failedRevisionOf(options.Book.Refused).clamped(options.Pace.RefusedLimit, options.Clock.Now()),
	}
}

// ErrExchanged says that the daemon's own program has been exchanged.
var ErrExchanged = errors.New("the daemon's program was exchanged for another")

// Run tends until ctx ends, and returns when its watches have ended too. It returns ErrExchanged
// when this process must end, so that another program takes over, and nil otherwise.
func (t *Reconciler) Run(ctx context.Context) error {
	logr.FromContextOrDiscard(ctx).Info("tending", "node", t.NodeName, "version", t.Book.Version)
	t.since = t.Clock.Now()
	ctx, stop := context.WithCancel(ctx)
	defer t.watches.Wait()
	defer stop()
	_, t.confidential = t.sealed(ctx, t.Book.Manifest)
	t.doubt()
	if !t.inDoubt() {
		t.follows()
	}
	t.tidy(ctx)
	if t.Client != nil {
		t.node = t.watch(ctx, t.Client.Resource(nodes), t.NodeName)
		t.beside(ctx)
	}
	for due := true; ctx.Err() == nil; {
		t.act(ctx, due)
		if t.exchanged {
			return ErrExchanged
		}
		timer := t.Clock.NewTimer(t.next.Sub(t.Clock.Now()))
		select {
		case <-ctx.Done():
		case <-t.wake:
			due = false
		case <-timer.C():
			due = true
		}
		timer.Stop()
	}
	return nil
}

// beside begins what goes on beside the tending.
func (t *Reconciler) beside(ctx context.Context) {
	t.watches.Go(func() { t.watchBoot(ctx) })
	if t.Source == nil {
		return
	}
	t.stager = payload.NewStager(payload.StagerOptions{
		Host: t.Host, Client: t.Client, Node: t.node, Namespace: t.Namespace, Source: t.Source, Clock: t.Clock,
		Fetched: func() {
			t.arrived.Store(true)
			select {
			case t.wake <- struct{}{}:
			default: // a signal is waiting already
			}
		},
	})
	t.watches.Go(func() { t.stager.Run(ctx) })
}

// watch begins to watch one object.
func (t *Reconciler) watch(ctx context.Context, client dynamic.ResourceInterface, name string) *apiclient.Watch {
	w := apiclient.NewWatch(client, name, t.Clock)
	w.Wake(t.wake)
	t.watches.Go(func() { w.Run(ctx) })
	return w
}

// inputs are what a pass depends on, beside the host. Most events on a Node (heartbeats, images)
// change none of them.
type inputs struct {
	exists                   bool
	desired, version, status string
	manifest, wished         string
	confidential             bool
	values                   map[string]string
	problem                  contract.Problem
}

func (i inputs) equal(other inputs) bool {
	return i.exists == other.exists && i.desired == other.desired && i.version == other.version &&
		i.status == other.status &&
		i.manifest == other.manifest && i.wished == other.wished && i.confidential == other.confidential &&
		i.problem == other.problem &&
		maps.Equal(i.values, other.values)
}

// act makes a pass if there is reason to, and sets when to look next. due says that the time for
// looking has come; otherwise something was seen.
func (t *Reconciler) act(ctx context.Context, due bool) {
	node, _ := t.node.Get()
	w, problem := t.choose(ctx, node)
	if t.inDoubt() && w == nil {
		t.despair(ctx, node, problem)
		return
	}
	now := t.inputs(ctx, node, w, problem)
	changed := !now.equal(t.seen) || t.supplied(w)
	resting := t.failing+t.waiting+t.unsaid == 0
	switch {
	case changed, t.attempting, t.wants(w), due && !resting, due && !t.proofDue.IsZero(), due &&
		!t.Clock.Now().Before(t.fullPass), due && t.keeper.Glance(ctx):
	case due:
		t.next = t.Clock.Now().Add(t.Pace.Glance)
		return
	default:
		return
	}
	// Somebody else wrote or removed the version: that is a wish to have everything verified.
	thorough := now.exists && t.seen.exists && now.version != t.seen.version
	t.seen = now
	report := t.pass(ctx, node, w, thorough)
	if t.exchanged {
		return // the other one says what comes of it
	}
	t.supply(w, report)
	pause := t.report(ctx, node, report, problem, changed)
	// A pass changes what it was made from; only what others change is news.
	t.seen.manifest, t.seen.confidential = t.present().digest, t.confidential != nil
	t.next = t.Clock.Now().Add(pause)
}

// identified is what a manifest of the ledger's is, as far as it takes the encoding of all of it to
// know.
type identified struct {
	version, digest string
	// named says that the version is its name.
	named bool
}

// present identifies the ledger's desired state. What is known is forgotten when that changes.
func (t *Reconciler) present() identified {
	if t.last.digest == "" || t.last.version != t.Book.Version {
		t.last = identified{version: t.Book.Version, digest: t.Book.Manifest.Digest(),
			named: contract.IsRevisionOf(t.Book.Version, t.Book.Manifest)}
	}
	return t.last
}

func (t *Reconciler) inputs(ctx context.Context, node *unstructured.Unstructured, w *candidate,
	problem *contract.Problem) inputs {
	now := inputs{manifest: t.present().digest, confidential: t.confidential != nil, values: t.remember(ctx, node)}
	if node != nil {
		a := node.GetAnnotations()
		now.exists, now.desired, now.version, now.status = true, a[contract.DesiredRevisionAnnotation],
			a[contract.RevisionAnnotation], a[contract.ApplyStatusAnnotation]
	}
	if w != nil {
		now.wished = w.Version
	}
	if problem != nil {
		now.problem = *problem
	}
	return now
}

// pass brings the host to what is wanted, or holds it at what it has.
func (t *Reconciler) pass(ctx context.Context, node *unstructured.Unstructured, w *candidate,
	thorough bool) apply.Report {
	if why := t.unproven(ctx); why != nil {
		return t.back(ctx, node, why, true)
	}
	switch {
	case t.wants(w):
		if lacking := t.lacks(w); lacking != nil {
			report := t.hold(ctx, node, thorough)
			report.Waiting = append(report.Waiting, lacking)
			return report
		}
		return t.try(ctx, node, w, thorough)
	case t.attempting && w == nil:
		return t.attempt(ctx, node, thorough)
	}
	return t.hold(ctx, node, thorough)
}

// report says what came of a pass, and answers when to look again.
func (t *Reconciler) report(ctx context.Context, node *unstructured.Unstructured, report apply.Report,
	problem *contract.Problem, changed bool) time.Duration {
	if ctx.Err() != nil {
		return t.Pace.Glance
	}
	log := logr.FromContextOrDiscard(ctx)
	if dropped, err := DropBootstrapCredential(t.Host.Files, t.NodeName, t.Host.System.Now()); err != nil {
		report.Failed = append(report.Failed, contract.NewProblem(contract.ReasonFileFailed, "%v", err))
	} else if dropped {
		log.Info("kubelet has its own certificate; its bootstrap credential is deleted")
	}
	proof, problemOfProof := t.settle(ctx, report)
	if problemOfProof != nil {
		report.Failed = append(report.Failed, problemOfProof)
	}
	t.relieve(ctx, node)
	if t.refused != nil && node != nil && (t.desires(node) != t.refused.version || t.overcame()) {
		t.pardon(ctx)
	}
	if t.refused != nil {
		report.Failed = append([]*contract.Problem{t.refused.problem}, report.Failed...)
	}
	if problem != nil {
		report.Failed = append([]*contract.Problem{problem}, report.Failed...)
	}
	if report.Holds() {
		t.sweep(ctx)
	}
	t.fullPass = t.Clock.Now().Add(jitter(t.Pace.Resync))
	pause := t.pace(report, changed)
	for _, sooner := range []time.Duration{proof, t.publish(ctx, node, report)} {
		if sooner > 0 {
			pause = min(pause, sooner)
		}
	}
	if t.refused != nil && t.refused.version != t.Book.Version {
		pause = max(min(pause, t.refused.until.Sub(t.Clock.Now())), time.Millisecond)
	}
	return pause
}

// desires is the version that a Node asks for.
func (t *Reconciler) desires(node *unstructured.Unstructured) string {
	if node == nil {
		return ""
	}
	return node.GetAnnotations()[contract.DesiredRevisionAnnotation]
}

// pace chooses the next pause: short and growing while something is awaited or fails, and starting
// anew when there is news.
func (t *Reconciler) pace(report apply.Report, changed bool) time.Duration {
	if changed {
		t.failing, t.waiting = 0, 0
	}
	if len(report.Waiting) == 0 {
		t.waitsSince = time.Time{}
	} else if t.waitsSince.IsZero() {
		t.waitsSince = t.Clock.Now()
	}
	switch {
	case len(report.Failed) > 0:
		t.failing, t.waiting = grow(t.failing, 2, t.Pace.Failing, t.Pace.FailingLimit), 0
		return jitter(t.failing)
	case len(report.Waiting) > 0:
		t.waiting, t.failing = grow(t.waiting, 1.5, t.Pace.Waiting, t.Pace.WaitingLimit), 0
		return t.waiting
	}
	t.failing, t.waiting = 0, 0
	return t.Pace.Glance
}

func grow(pause time.Duration, factor float64, first, limit time.Duration) time.Duration {
	if pause == 0 {
		return first
	}
	return min(time.Duration(float64(pause)*factor), limit)
}

// jitter spreads a pause by a fifth to either side.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// remember keeps the Node's values that the manifest asks for, so that services start without the
// API server.
func (t *Reconciler) remember(ctx context.Context, node *unstructured.Unstructured) map[string]string {
	paths := plan.NodePaths(t.Book.Manifest)
	values := make(map[string]string, len(paths))
	var object map[string]any
	if node != nil {
		object = node.Object
	}
	look := plan.NodeFields(object, t.Book.NodeValues)
	for _, p := range paths {
		if value, problem := look(p); problem == nil {
			values[string(p)] = value
		}
	}
	if !maps.Equal(values, t.Book.NodeValues) {
		t.Book.NodeValues = values
		if err := t.Book.Save(); err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "the Node's values can't be remembered")
		}
	}
	return values
}
