package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// firstLook delays the first pass, so that a new leader can do urgent work first.
	firstLook = 30 * time.Second
	lookEvery = 5 * time.Minute
	// lookLimit limits how long a pass reads pods of nodes. The next pass starts with the nodes that this pass skipped.
	lookLimit = 3 * time.Minute
	// staleAfter is how old a finding may be. It is so long that one failed pass doesn't make a finding stale.
	staleAfter = 2*lookEvery + lookLimit
	// eventsAtOnce is the maximum number of events in a pass. eventsOfNamespace is the maximum for one namespace. The
	// next passes write the remaining events.
	eventsAtOnce, eventsOfNamespace = 50, 20
	// eventAgain is the time after which all events are written again: the API server deletes events after an hour.
	eventAgain = 55 * time.Minute
	// named is the maximum number of pods in a message.
	named = 3
	// whyBytes limits the reason for one pod, because the reason may contain an image name of a megabyte.
	whyBytes = 256
	// noteBytes is the API server's limit for the text of an event.
	noteBytes = 1024
)

// Checker finds pods that can't run on their node, and pending pods that no node can run.
type Checker struct {
	cached   client.Reader // of Nodes and WindowsInstances
	pods     kubernetes.Interface
	events   events.EventRecorder
	problems *prometheus.GaugeVec
	now      func() time.Time
	changed  chan event.GenericEvent
	// nodes contains the findings on each node, by node name. pending contains the findings about pods without a node.
	// fresh contains the findings whose events this pass writes. `reported` contains the findings that got an event
	// after the time `forgotten`. Only Start accesses these fields.
	nodes     map[string]*known
	pending   known
	fresh     []finding
	reported  map[found]bool
	forgotten time.Time

	mu sync.Mutex
	// misplaced contains the problem of each checked node, or nil, by node name.
	misplaced map[string]*contract.Problem
}

func newChecker(cached client.Reader, podClient kubernetes.Interface, recorder events.EventRecorder,
	now func() time.Time) *Checker {
	return &Checker{cached: cached, pods: podClient, events: recorder, now: now,
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_workload_problems",
			Help: "Pods that can't run on the Windows node that they are on, or that no Windows node can take; " +
				"with PodsNotRead, the lists of pods that could not be read to the end.",
		}, []string{"reason"}),
		changed: make(chan event.GenericEvent), nodes: map[string]*known{},
		misplaced: map[string]*contract.Problem{}}
}

// Setup adds the checker to a manager. podClient must come from pods.NewClient.
func Setup(mgr ctrl.Manager, podClient kubernetes.Interface) (*Checker, error) {
	c := newChecker(mgr.GetClient(), podClient, mgr.GetEventRecorder(contract.OperatorServiceAccount), time.Now)
	metrics.Registry.MustRegister(c.problems)
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("adding the check of workloads: %w", err)
	}
	return c, nil
}

// Changed returns a channel that receives each Node whose problem has changed.
func (c *Checker) Changed() <-chan event.GenericEvent { return c.changed }

// Misplaced returns a problem if pods on a node can't run there, or if the pods couldn't be read. The second result is
// false if the node was not checked yet.
func (c *Checker) Misplaced(node string) (*contract.Problem, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	problem, looked := c.misplaced[node]
	return problem, looked
}

// Start checks all pods every lookEvery, until ctx is done.
func (c *Checker) Start(ctx context.Context) error {
	for wait := firstLook; ; wait = lookEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "checking for pods that can't run failed; retrying", "after",
				lookEvery)
		}
	}
}

func (c *Checker) look(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := c.cached.List(ctx, nodes, client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)},
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	before := c.nodes
	c.nodes = map[string]*known{}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		if c.nodes[name] = before[name]; c.nodes[name] == nil {
			c.nodes[name] = &known{}
		}
	}
	pendingFor, err := c.pendingFor(ctx)
	if err != nil {
		return err
	}
	began := c.now()
	if c.fresh = nil; began.Sub(c.forgotten) >= eventAgain {
		c.reported, c.forgotten = map[found]bool{}, began
	}
	err = c.read(ctx, nodes.Items, pendingFor)
	c.show(began)
	return errors.Join(err, c.say(ctx))
}

// pendingFor returns how long a pod must have been pending before it is checked. While a new host joins, this time is
// longer, because the host may become a node for the pod.
func (c *Checker) pendingFor(ctx context.Context) (time.Duration, error) {
	instances := &v1alpha1.WindowsInstanceList{}
	if err := c.cached.List(ctx, instances, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing instances: %w", err)
	}
	if slices.ContainsFunc(instances.Items, func(i v1alpha1.WindowsInstance) bool {
		return i.DeletionTimestamp.IsZero() && c.nodes[i.Status.NodeName] == nil &&
			c.now().Sub(i.CreationTimestamp.Time) < policy.UnplaceableJoining
	}) {
		return policy.UnplaceableJoining, nil
	}
	return policy.UnplaceableAfter, nil
}

// read reads all relevant pods. It starts with the node that was not read for the longest time.
func (c *Checker) read(ctx context.Context, nodes []corev1.Node, pendingFor time.Duration) error {
	began := c.now()
	names := slices.SortedFunc(maps.Keys(c.nodes), func(a, b string) int {
		return cmp.Or(c.nodes[a].tried.Compare(c.nodes[b].tried), strings.Compare(a, b))
	})
	var failed []error
	for _, name := range names {
		if c.now().Sub(began) > lookLimit {
			break
		}
		// The API server answers this query from its cache, which has an index of pods by node.
		err := c.list(ctx, c.nodes[name], pods.Query{Fields: pods.OfNode(name), Cached: true}, policy.MisplacedPod)
		if err != nil && len(failed) < mostErrors { // continue with the other nodes
			failed = append(failed, fmt.Errorf("looking at node %s: %w", name, err))
		}
	}
	unplaced := fields.SelectorFromSet(fields.Set{"spec.nodeName": "", "status.phase": string(corev1.PodPending)})
	err := c.list(ctx, &c.pending, pods.Query{Fields: unplaced, Page: pods.Page},
		func(pod *corev1.Pod) (contract.Reason, string) {
			return policy.UnplaceablePod(pod, nodes, c.now(), pendingFor)
		})
	if err != nil {
		failed = append(failed, fmt.Errorf("looking at pending pods: %w", err))
	}
	return errors.Join(failed...)
}

// mostErrors is how many errors of nodes are logged. If there are more, the API server probably doesn't work.
const mostErrors = 3

// list reads the pods that `query` selects, within a time limit. judge returns why a pod can't run, or an empty reason.
func (c *Checker) list(ctx context.Context, k *known, query pods.Query,
	judge func(*corev1.Pod) (contract.Reason, string)) error {
	query.Now, k.tried = c.now, c.now()
	counts, first := map[contract.Reason]int{}, []finding(nil)
	all, err := pods.Each(ctx, c.pods, query, func(pod *corev1.Pod) error {
		reason, why := judge(pod)
		if reason == "" {
			return nil
		}
		counts[reason]++
		f := newFinding(pod, reason, why)
		first = few(first, f)
		c.report(f)
		return nil
	})
	if err != nil {
		return err
	}
	k.merge(counts, first, all, c.now())
	return nil
}

// report adds a finding to the findings whose events this pass writes, unless the finding already has an event. Each
// namespace gets only a share of the events. Otherwise, a user who creates pods every second could prevent events in
// other namespaces.
func (c *Checker) report(f finding) {
	share := 0
	for _, other := range c.fresh {
		if other.namespace == f.namespace {
			share++
		}
	}
	if !c.reported[f.found] && len(c.fresh) < eventsAtOnce && share < eventsOfNamespace {
		c.reported[f.found] = true
		c.fresh = append(c.fresh, f)
	}
}

// show sets the metric and writes the events. `began` is when the pass began.
func (c *Checker) show(began time.Time) {
	counts := map[contract.Reason]int{contract.ReasonLinuxPodPlaced: 0, contract.ReasonImageNotForNode: 0,
		contract.ReasonPodUnplaceable: 0, contract.ReasonPodsNotRead: 0}
	for _, k := range append(slices.Collect(maps.Values(c.nodes)), &c.pending) {
		for reason, count := range k.counts {
			counts[reason] += count
		}
		if k.all.Before(began) {
			counts[contract.ReasonPodsNotRead]++
		}
	}
	for reason, count := range counts {
		c.problems.WithLabelValues(string(reason)).Set(float64(count))
	}
	for _, f := range c.fresh {
		c.events.Eventf(f.regarding, nil, corev1.EventTypeWarning, string(f.reason), "Check", "%s",
			shorten(fmt.Sprintf("pod %s %s (%s). %s", f.name, f.why, f.reason.Code(), f.reason.Fix()), noteBytes))
	}
}

// say stores the problem of each node. It sends nodes with a changed problem to the channel of Changed.
func (c *Checker) say(ctx context.Context) error {
	problems := map[string]*contract.Problem{}
	for node, k := range c.nodes {
		if !k.tried.IsZero() {
			problems[node] = k.problem(c.now())
		}
	}
	c.mu.Lock()
	before := c.misplaced
	c.misplaced = problems
	c.mu.Unlock()
	none := contract.Problem{}
	either := maps.Clone(before)
	maps.Copy(either, problems)
	for name := range either {
		if *cmp.Or(problems[name], &none) == *cmp.Or(before[name], &none) {
			continue
		}
		select {
		case c.changed <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
