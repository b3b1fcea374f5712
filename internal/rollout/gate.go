// Package rollout answers WHOSE TURN it is to be disrupted: it gathers the fleet as the API server
// has it, has the policy decide, and writes down who has a place before it says so.
//
// Controllers ask it before they take a node to another revision, reboot it or delete a Machine. All
// who ask at the same time are answered by one look, by their Order. All places that were given out are
// in one list, in one object that nobody else writes: of two operators that decide at the same time
// one has its decision refused by the API server. A place may be used by a write under one version of
// its instance only, so it is void once the instance has changed. In memory is only who waits, so
// that the first of them is called when a place is free, and since when Nodes are seen not Ready: an
// operator that takes over reads the same list and decides the same, or later. This package never
// changes a Node, a Machine, or of an instance more than an annotation.
package rollout

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=windows-rollout-places,verbs=get;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=list;patch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsmachineconfigs,resourceNames=cluster,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/observed"
	"github.com/windows-nodes/wmco/internal/policy"
)

// decisionTimeout ends a decision that waits for an API server that does not answer; others wait behind it.
const decisionTimeout = 30 * time.Second

// UseTimeout is how long who was given a place may take to show that it uses it.
const UseTimeout = decisionTimeout

// Sets tells which sets make hosts anew.
type Sets interface {
	// Sets lists them, through a cache or, live, past it. There are none while there is no API of
	// such sets. A repeated call reads again.
	Sets(ctx context.Context, live bool) ([]policy.Set, error)
}

// Options are what a Gate works with. All are required but Sets and Now.
type Options struct {
	// Cached reads through the manager's cache, Live past it.
	Cached, Live client.Reader
	// Writer writes the list of places, and annotations of instances.
	Writer client.Writer
	// Sets may be nil.
	Sets Sets
	// Namespace of the operator, where the instances are.
	Namespace string
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

// Gate lets one decision through after the other. It may be used from several goroutines.
type Gate struct {
	Options
	// Observed is since when Nodes are not Ready, as this operator sees it.
	Observed *observed.Log
	turn     chan struct{}

	mu sync.Mutex
	// queue are requests that no round has taken yet; waiters, by name, those who have to wait.
	queue   []*queued
	waiters map[string]*waiter
	// freed is when a place became free of which nobody was told and nobody has looked since; zero if there
	// is none.
	freed time.Time
}

// New checks that everything is there.
func New(options Options) (*Gate, error) {
	if options.Cached == nil || options.Live == nil || options.Writer == nil || options.Namespace == "" {
		return nil, errors.New("making a rollout gate: an option is missing")
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Gate{Options: options, Observed: observed.New(options.Now), turn: make(chan struct{}, 1),
		waiters: map[string]*waiter{}}, nil
}

// Snapshot is what a decision sees.
type Snapshot struct {
	Fleet policy.Fleet
	// Instances by name.
	Instances map[string]*v1alpha1.WindowsInstance
	// MaxUnavailable is the user's budget; nil without one. Closed says in words why no node that
	// serves may be disrupted now; empty when it may.
	MaxUnavailable *intstr.IntOrString
	Closed         string
	// Config is what the user set.
	Config *v1alpha1.WindowsMachineConfig
	// pending says in words that the node of who asks has another place that is not used yet.
	pending string
}

// MayDisrupt decides whether a node may be disrupted, by what is seen.
func (s Snapshot) MayDisrupt(node string) policy.Verdict {
	if s.pending != "" {
		return policy.Verdict{Why: s.pending}
	}
	return policy.MayDisrupt(node, s.Fleet, s.MaxUnavailable, s.Closed)
}

// MayDisruptAnytime is MayDisrupt for a node that no window holds: its owner has said when it is to be removed, or what
// is done with it has begun, and is brought to its end.
func (s Snapshot) MayDisruptAnytime(node string) policy.Verdict {
	if s.pending != "" {
		return policy.Verdict{Why: s.pending}
	}
	return policy.MayDisruptAnytime(node, s.Fleet, s.MaxUnavailable)
}

// Halted says in words why no other node may be taken to a revision; empty when one may.
func (s Snapshot) Halted(revision string) string {
	return policy.Halted(revision, s.Config, slices.Collect(maps.Values(s.Instances)))
}

// Request is one decision.
type Request struct {
	// Name of who asks; no two ask by one name at the same time. An instance's is its UID, a
	// Machine's its MachineName.
	Name string
	// Node is the node that would be disrupted; empty when there is none. Machine is the one that
	// would be deleted; empty for an instance.
	Node, Machine string
	// Order among all who ask or wait.
	Order Order
	// IsLive spares who asks a no by the cache: it had a place a moment ago, and what became free for that may not show
	// there yet.
	IsLive bool
	// Decide says whether there is a place, of what it is shown. It is called a few times, by
	// whoever decides for all while the one who asks waits for the answer, and must have no other
	// effect than to note what it sees and its reasons.
	Decide func(look Snapshot) (allowed bool)
	// Wake has who asks ask again, after a no, as soon as there is a place; nil for who does not
	// want to be called. It must not block.
	Wake func()
}

// Result is what came of a request.
type Result struct {
	// Granted says that who asked has a place. It says within UseTimeout that it uses it, by a write
	// of its instance under the version that Decide was shown last, or gives it back by Return. Who
	// knows of neither asks again.
	Granted bool
	Err     error
}

// Acquire has a request decided. A no by the cache is a no: that keeps hundreds that wait from reading
// the whole fleet again and again; who was called, because the cache may not show yet what became
// free, is spared it. A yes by the cache is asked once more of the API server, and a place is in the
// list before it is said.
func (g *Gate) Acquire(ctx context.Context, q Request) (granted bool, err error) {
	answer := g.AcquireAll(ctx, []Request{q})[0]
	return answer.Granted, answer.Err
}

// AcquireAll has several requests decided by one look, each as if asked alone. The answers are in the
// order of the requests.
func (g *Gate) AcquireAll(ctx context.Context, requests []Request) []Result {
	mine := make([]*queued, len(requests))
	for i, q := range requests {
		mine[i] = &queued{Request: q, isCalled: q.IsLive || g.isCalled(q.Name), answered: make(chan struct{})}
	}
	g.back(mine)
	answers := make([]Result, len(mine))
	for i, one := range mine {
		g.await(ctx, one)
		answers[i] = one.Result
	}
	return answers
}

// await returns when a request is answered. Whoever has the turn decides for all.
func (g *Gate) await(ctx context.Context, one *queued) {
	for {
		select {
		case <-one.answered:
			return
		case g.turn <- struct{}{}:
			select {
			case <-one.answered:
			default:
				g.round(context.WithoutCancel(ctx))
			}
			<-g.turn
		case <-ctx.Done():
			if !g.withdraw(one) { // it is being decided, which is bounded
				g.turn <- struct{}{}
				left := g.withdraw(one)
				<-g.turn
				if !left {
					return
				}
			}
			one.answer(false, fmt.Errorf("waiting to decide: %w", ctx.Err()))
			return
		}
	}
}

func (g *Gate) take() []*queued {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.queue
	g.queue = nil
	return all
}

func (g *Gate) back(all []*queued) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue = append(g.queue, all...)
}

// withdraw takes a request out of the queue. It is false when a round has taken it.
func (g *Gate) withdraw(one *queued) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, one)
	if i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	}
	return i >= 0
}

// look gathers the fleet. The list of places was read before: one that is given out meanwhile makes
// what is decided by this look void.
func (g *Gate) look(ctx context.Context, live bool) (Snapshot, error) {
	reader := g.Cached
	if live {
		reader = g.Live
	}
	instances := &v1alpha1.WindowsInstanceList{}
	if err := reader.List(ctx, instances, client.InNamespace(g.Namespace)); err != nil {
		return Snapshot{}, fmt.Errorf("listing instances: %w", err)
	}
	var sets []policy.Set
	if g.Sets != nil {
		var err error
		if sets, err = g.Sets.Sets(ctx, live); err != nil {
			return Snapshot{}, fmt.Errorf("listing what makes hosts: %w", err)
		}
	}
	nodes := &corev1.NodeList{}
	if err := reader.List(ctx, nodes, client.MatchingLabels{contract.OSIDLabel: contract.OSIDWindows}); err != nil {
		return Snapshot{}, fmt.Errorf("listing nodes: %w", err)
	}
	config, err := cluster.Settings(ctx, reader, g.Namespace)
	if err != nil {
		return Snapshot{}, err
	}
	seen := map[string]policy.Since{}
	for i := range nodes.Items {
		seen[nodes.Items[i].Name] = g.Observed.NotReady(&nodes.Items[i])
	}
	look := Snapshot{
		Fleet:          policy.NewFleet(nodes.Items, instances.Items, sets, seen),
		MaxUnavailable: config.Spec.Rollout.MaxUnavailable,
		Closed:         policy.Closed(config.Spec.Rollout, g.Now()), Config: config,
		Instances: make(map[string]*v1alpha1.WindowsInstance, len(instances.Items)),
	}
	look.Fleet.Now, look.Fleet.UnavailableAfter = g.Now(), v1alpha1.DefaultUnavailableAfter
	if after := config.Spec.Rollout.UnavailableAfter; after != nil {
		look.Fleet.UnavailableAfter = after.Duration
	}
	for i := range instances.Items {
		look.Instances[instances.Items[i].Name] = &instances.Items[i]
	}
	return look, nil
}
