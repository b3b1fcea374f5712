// Package tend answers when the daemon acts: it watches its own Node and the one services manifest that the Node asks for, has the host brought to it,
// and says on the Node what holds.
//
// The service runs it for as long as the host is a node. While nothing changes it sends nothing: two watches stand open, and every few seconds it
// looks at its services and files. Without the API server it goes on with the last manifest that it knew.
package tend

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/agent/fact"
	"github.com/windows-nodes/wmco/internal/agent/keep"
	"github.com/windows-nodes/wmco/internal/agent/kubelet"
	"github.com/windows-nodes/wmco/internal/agent/ledger"
	"github.com/windows-nodes/wmco/internal/agent/target"
	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Pace says how often things are looked at.
type Pace struct {
	// Glance lies between quick looks at service states, file sizes and the environment; 10 s if 0.
	Glance time.Duration
	// Resync lies between full passes while everything holds, give or take a fifth; 2 min if 0.
	Resync time.Duration
	// Waiting is the first pause after a pass that waits for a fact that no event announces, such as the overlay network; it grows to
	// WaitingLimit. 1 s and 15 s if 0.
	Waiting, WaitingLimit time.Duration
	// Failing is the first pause after a pass that failed; it doubles up to FailingLimit. 5 s and 1 min if 0.
	Failing, FailingLimit time.Duration
	// Status is the shortest time between two writes of the apply-status annotation; 5 s if 0.
	Status time.Duration
	// Settle is how long something is awaited before the Node says so; 3 s if 0. Most waits of a join are over by then.
	Settle time.Duration
}

func (p Pace) withDefaults() Pace {
	for value, fallback := range map[*time.Duration]time.Duration{
		&p.Glance: 10 * time.Second, &p.Resync: 2 * time.Minute, &p.Waiting: time.Second, &p.WaitingLimit: 15 * time.Second,
		&p.Failing: 5 * time.Second, &p.FailingLimit: time.Minute, &p.Status: 5 * time.Second, &p.Settle: 3 * time.Second,
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
	Book *ledger.Book
	// Client speaks to the API server as this node's daemon. Without one, the host is held at what was last known.
	Client dynamic.Interface
	// NodeName is the own Node, Namespace where the manifests are.
	NodeName, Namespace string
	Pace                Pace
	// Clock for pauses; the real one if nil.
	Clock clock.Clock
}

// Tender tends one host.
type Tender struct {
	Options
	keeper *keep.Keeper
	node   *watched
	// manifest is the watch of the ConfigMap of the version that the Node asks for.
	manifest        *watched
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
	// next is when to look again, fullPass when a full pass is due although nothing seems to have changed.
	next, fullPass time.Time
	watches        sync.WaitGroup
}

// New makes a Tender.
func New(options Options) *Tender {
	options.Pace = options.Pace.withDefaults()
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Tender{Options: options, keeper: keep.New(options.Host, options.Book), wake: make(chan struct{}, 1), stopManifest: func() {}}
}

// Run tends until ctx ends, and returns when its watches have ended too.
func (t *Tender) Run(ctx context.Context) {
	logr.FromContextOrDiscard(ctx).Info("tending", "node", t.NodeName, "version", t.Book.Version)
	ctx, stop := context.WithCancel(ctx)
	defer t.watches.Wait()
	defer stop()
	if t.Client != nil {
		t.node = t.watch(ctx, t.Client.Resource(nodes), t.NodeName)
	}
	for due := true; ctx.Err() == nil; {
		t.act(ctx, due)
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
}

// watch begins to watch one object.
func (t *Tender) watch(ctx context.Context, client dynamic.ResourceInterface, name string) *watched {
	w := &watched{client: client, name: name, wake: t.wake, clock: t.Clock}
	t.watches.Go(func() { w.run(ctx) })
	return w
}

// inputs are what a pass depends on, beside the host. Most events on a Node (heartbeats, images) change none of them.
type inputs struct {
	exists                   bool
	desired, version, status string
	manifest                 string
	values                   map[string]string
	problem                  contract.Problem
}

func (i inputs) equal(other inputs) bool {
	return i.exists == other.exists && i.desired == other.desired && i.version == other.version && i.status == other.status &&
		i.manifest == other.manifest && i.problem == other.problem && maps.Equal(i.values, other.values)
}

// act makes a pass if there is reason to, and sets when to look next. due says that the time for looking has come; otherwise something was seen.
func (t *Tender) act(ctx context.Context, due bool) {
	node, _ := t.node.get()
	problem := t.choose(ctx, node)
	now := inputs{manifest: t.Book.Manifest.Digest(), values: t.remember(ctx, node)}
	if node != nil {
		a := node.GetAnnotations()
		now.exists, now.desired, now.version, now.status = true, a[contract.DesiredVersionAnnotation], a[contract.VersionAnnotation], a[contract.AppliedReasonAnnotation]
	}
	if problem != nil {
		now.problem = *problem
	}
	changed := !now.equal(t.seen)
	resting := t.failing+t.waiting+t.unsaid == 0
	switch {
	case changed, due && !resting, due && !t.Clock.Now().Before(t.fullPass), due && t.keeper.Glance(ctx):
	case due:
		t.next = t.Clock.Now().Add(t.Pace.Glance)
		return
	default:
		return
	}
	// Somebody else wrote or removed the version: that is a wish to have everything verified.
	thorough := now.exists && t.seen.exists && now.version != t.seen.version
	t.seen = now
	t.next = t.Clock.Now().Add(t.pass(ctx, node, problem, thorough, changed))
}

func (t *Tender) pass(ctx context.Context, node *unstructured.Unstructured, problem *contract.Problem, thorough, changed bool) time.Duration {
	request := keep.Request{Scope: target.Everything, Thorough: thorough}
	if node != nil {
		request.Node = node.Object
	}
	report := t.keeper.Pass(ctx, request)
	if ctx.Err() != nil {
		return t.Pace.Glance
	}
	if problem != nil {
		report.Failed = append([]*contract.Problem{problem}, report.Failed...)
	}
	if dropped, err := kubelet.DropCredential(t.Host.Files, t.NodeName, t.Host.System.Now()); err != nil {
		report.Failed = append(report.Failed, contract.NewProblem(contract.ReasonFileFailed, "%v", err))
	} else if dropped {
		logr.FromContextOrDiscard(ctx).Info("kubelet has its own certificate; its bootstrap credential is deleted")
	}
	t.fullPass = t.Clock.Now().Add(jitter(t.Pace.Resync))
	pause := t.pace(report, changed)
	if soon := t.publish(ctx, node, report); soon > 0 {
		pause = min(pause, soon)
	}
	return pause
}

// pace chooses the next pause: short and growing while something is awaited or fails, and starting anew when there is news.
func (t *Tender) pace(report keep.Report, changed bool) time.Duration {
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

// remember keeps the Node's values that the manifest asks for, so that services start without the API server.
func (t *Tender) remember(ctx context.Context, node *unstructured.Unstructured) map[string]string {
	paths := target.Paths(t.Book.Manifest)
	values := make(map[string]string, len(paths))
	var object map[string]any
	if node != nil {
		object = node.Object
	}
	look := fact.FromNode(object, t.Book.NodeValues)
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
