package scene

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Observer watches Nodes and Pods beside everybody else, and remembers what it saw: how many nodes
// were away at once, in which order they went, and whether pods were treated as they must be. It
// sees every change, in order, and asks neither the operator nor the daemons.
type Observer struct {
	stop  context.CancelFunc
	ended []chan error

	mu    sync.Mutex
	nodes map[string]*Observed
	pods  map[string]*corev1.Pod
	left  []left
	gone  int
	most  []string
	any   []string
	wrong []string
	order int
	// first and last are when the first node went away and the last one came back.
	first, last time.Time
}

// Observed is one node. Times are those at which the observer was told.
type Observed struct {
	Node string
	// Version that the daemon says holds, and the one that the operator desires.
	Version, Desired string
	// Staged is the version whose payload is on the host, and StagedBytes what came for it.
	Staged      string
	StagedBytes int64
	// StagedSeconds is how long the node served while its payload came.
	StagedSeconds float64
	// Serves: Ready and not cordoned. Cordoned and Ready apart.
	Serves, Ready, Cordoned bool
	// Away: it does not serve because of us, by what the Node says: it has its turn, or our cordon,
	// or its version is not the desired one. On a machine that has too much to do nodes get
	// NotReady by themselves, too.
	Away bool
	// UnavailableSeconds is how long it did not serve, and Absences how often it was away.
	UnavailableSeconds float64
	Absences           int
	// Order in which nodes first went away, from 1; 0 for one that never did.
	Order int
	// Unstaged says that it was cordoned while what it was to fetch was not there yet.
	Unstaged bool
	// Annotations as they are now.
	Annotations map[string]string

	stageBegan, absentSince time.Time
}

// Observe begins to watch, and returns when it has seen all that there is. Stop ends it.
func (s *Scene) Observe(ctx context.Context) (*Observer, error) {
	clients, err := kubernetes.NewForConfig(s.Cluster.Admin())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	o := &Observer{stop: stop, nodes: map[string]*Observed{}, pods: map[string]*corev1.Pod{}}
	nodes, err := clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	pods, err := clients.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range nodes.Items {
		o.sawNode(&nodes.Items[i], time.Now())
	}
	for i := range pods.Items {
		o.sawPod(&pods.Items[i])
	}
	err = o.follow(ctx, nodes.ResourceVersion,
		func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return clients.CoreV1().Nodes().Watch(ctx, options)
		})
	if err == nil {
		err = o.follow(ctx, pods.ResourceVersion,
			func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return clients.CoreV1().Pods(metav1.NamespaceAll).Watch(ctx, options)
			})
	}
	if err != nil {
		return nil, errors.Join(err, o.Stop())
	}
	return o, nil
}

// follow takes every change from a version on. A watch that is cut goes on where it was.
func (o *Observer) follow(ctx context.Context, from string, open cache.WatchFuncWithContext) error {
	changes, err := toolswatch.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{WatchFuncWithContext: open})
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	ended := make(chan error, 1)
	o.ended = append(o.ended, ended)
	go func() {
		var err error
		for change := range changes.ResultChan() {
			if change.Type == watch.Error {
				err = fmt.Errorf("watching: %w", apierrors.FromObject(change.Object))
			}
			o.saw(change)
		}
		if err == nil && ctx.Err() == nil {
			err = errors.New("watching: the watch ended")
		}
		ended <- err
	}()
	return nil
}

// Stop ends the observation. Its error says that something was missed, so that what was seen proves
// nothing.
func (o *Observer) Stop() error {
	o.stop()
	var all []error
	for _, ended := range o.ended {
		all = append(all, <-ended)
	}
	o.ended = nil
	return errors.Join(all...)
}

// Nodes are all nodes, by name, as they are now.
func (o *Observer) Nodes() []Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Observed, 0, len(o.nodes))
	for _, n := range o.nodes {
		copied := *n
		if !n.Serves {
			copied.UnavailableSeconds += time.Since(n.absentSince).Seconds()
		}
		all = append(all, copied)
	}
	slices.SortFunc(all, func(a, b Observed) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// Most are the nodes that were away when the most were.
func (o *Observer) Most() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.most)
}

// MostOfAll are the nodes that did not serve, whatever the reason, when the most did not.
func (o *Observer) MostOfAll() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.any)
}

// Span is how long it took from when the first node went away until the last was back.
func (o *Observer) Span() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last.Sub(o.first)
}

// Wrong is what happened that must not: a node that was cordoned before its payload was there, a
// pod that was given less than its grace, or that was still on a node when that began to change.
func (o *Observer) Wrong() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := slices.Clone(o.wrong)
	for _, l := range o.left {
		all = append(all, l.what)
	}
	return all
}

// Ended counts pods that ended.
func (o *Observer) Ended() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}

func (o *Observer) saw(change watch.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch object := change.Object.(type) {
	case *corev1.Node:
		if change.Type == watch.Deleted {
			delete(o.nodes, object.Name)
			return
		}
		o.sawNode(object, time.Now())
	case *corev1.Pod:
		if change.Type == watch.Deleted {
			key := object.Namespace + "/" + object.Name
			delete(o.pods, key)
			o.endedAt(key, object.ResourceVersion)
			o.gone++
			return
		}
		o.sawPod(object)
	}
}

func (o *Observer) sawNode(object *corev1.Node, now time.Time) {
	if object.Labels[contract.OSIDLabel] != contract.OSIDWindows {
		return
	}
	n, known := o.nodes[object.Name]
	if !known {
		n = &Observed{Node: object.Name, Serves: true}
		o.nodes[object.Name] = n
	}
	before := *n
	n.Annotations = object.Annotations
	n.Ready, n.Cordoned = policy.IsReady(object), object.Spec.Unschedulable
	n.Serves = n.Ready && !n.Cordoned
	n.Version, n.Desired, n.Staged = object.Annotations[contract.RevisionAnnotation],
		object.Annotations[contract.DesiredRevisionAnnotation], object.Annotations[contract.StagedAnnotation]
	n.StagedBytes, _ = strconv.ParseInt(object.Annotations[contract.StagedBytesAnnotation], 10, 64)
	n.Away = !n.Serves && ours(object, n)
	o.sawStaging(before, n, now)
	if known && before.Desired != "" && before.Desired != n.Desired && n.Cordoned {
		o.lookForPods(n, object.ResourceVersion)
	}
	o.sawService(before, n, now)
}

// sawService counts who serves, now that one node is otherwise than before.
func (o *Observer) sawService(before Observed, n *Observed, now time.Time) {
	if before.Serves && !n.Serves {
		n.absentSince = now
	}
	if !before.Serves && n.Serves {
		n.UnavailableSeconds += now.Sub(n.absentSince).Seconds()
	}
	switch {
	case !before.Away && n.Away:
		n.Absences++
		if o.first.IsZero() {
			o.first = now
		}
		if o.order++; n.Order == 0 {
			n.Order = o.order
		}
	case before.Away && !n.Away:
		o.last = now
	}
	o.most = longer(o.most, o.which(func(n *Observed) bool { return n.Away }))
	o.any = longer(o.any, o.which(func(n *Observed) bool { return !n.Serves }))
}

// which are the nodes of a kind, by name.
func (o *Observer) which(kind func(n *Observed) bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(o.nodes)) {
		if kind(o.nodes[name]) {
			names = append(names, name)
		}
	}
	return names
}

func longer(a, b []string) []string {
	if len(b) > len(a) {
		return b
	}
	return a
}

// ours says whether it is by us that a node does not serve, if it does not.
func ours(node *corev1.Node, n *Observed) bool {
	_, turn := node.Labels[contract.UpgradingLabel]
	_, cordon := node.Annotations[contract.CordonedAnnotation]
	return turn || cordon || n.Version != n.Desired
}

func (o *Observer) sawStaging(before Observed, n *Observed, now time.Time) {
	wanted, wantedBefore := n.Annotations[contract.StageAnnotation], before.Annotations[contract.StageAnnotation]
	if wanted != wantedBefore && wanted != "" && wanted != n.Staged {
		n.stageBegan = now
	}
	if before.Staged != n.Staged && n.Staged == wanted && !n.stageBegan.IsZero() {
		n.StagedSeconds += now.Sub(n.stageBegan).Seconds()
		n.stageBegan = time.Time{}
	}
	if n.Cordoned && !before.Cordoned && wanted != "" && wanted != n.Staged {
		n.Unstaged = true
		o.wrong = append(o.wrong, fmt.Sprintf("%s was cordoned before %s was on its disk", n.Node, wanted))
	}
}

// left is a pod that we know of when its node, which is cordoned, begins to change. Two watches
// tell of both, so it may be gone already, and only its end can say.
type left struct {
	pod, what string
	// revision of the node's change.
	revision uint64
}

// lookForPods is called when a node that is cordoned begins to change: nobody may be on it any
// more.
func (o *Observer) lookForPods(n *Observed, revision string) {
	for key, pod := range o.pods {
		if owner := metav1.GetControllerOf(pod); pod.Spec.NodeName == n.Node && owner != nil &&
			owner.Kind != "DaemonSet" {
			what := fmt.Sprintf("%s was on %s when that went from %s to %s", key, n.Node, n.Version, n.Desired)
			o.left = append(o.left, left{pod: key, what: what, revision: number(revision)})
		}
	}
}

// number of a revision. They are those of etcd here, and count all changes of the cluster.
func number(revision string) uint64 {
	n, _ := strconv.ParseUint(revision, 10, 64)
	return n
}

// endedAt judges what was left by when the pod ended.
func (o *Observer) endedAt(key, revision string) {
	o.left = slices.DeleteFunc(o.left, func(l left) bool {
		if l.pod != key {
			return false
		}
		if number(revision) > l.revision {
			o.wrong = append(o.wrong, l.what)
		}
		return true
	})
}

func (o *Observer) sawPod(pod *corev1.Pod) {
	key := pod.Namespace + "/" + pod.Name
	before := o.pods[key]
	o.pods[key] = pod
	first := pod.DeletionTimestamp != nil && (before == nil || before.DeletionTimestamp == nil)
	if !first || pod.Spec.NodeName == "" {
		return
	}
	if given, due := pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds; given == nil ||
		due == nil || *given < *due {
		o.wrong = append(o.wrong, key+" was given less than its grace period")
	}
}
