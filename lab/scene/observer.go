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

// Observer watches Nodes and Pods and records how an upgrade affects them: how many nodes were unavailable at the same
// time, the order of disruptions, and whether pods were evicted correctly. It sees all changes in their order. It runs
// independently of the operator and the daemons.
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
	// first is when a node was disrupted for the first time. last is when the last disruption of a node ended.
	first, last time.Time
}

// Observed is the state of one node. Its times are when the observer received the changes.
type Observed struct {
	Node string
	// Version is the version that the daemon reports. Desired is the version that the operator requests.
	Version, Desired string
	// Staged is the version of the payload that is on the host. StagedBytes is how many bytes of payload the host has
	// downloaded.
	Staged      string
	StagedBytes int64
	// StagedSeconds is how long the transfer of the payload took while the node was in service.
	StagedSeconds float64
	// Serves means that the node is in service: Ready is true and Cordoned is false.
	Serves, Ready, Cordoned bool
	// Away means that the operator disrupts the node, according to the Node: the node holds a slot in the rollout
	// budget, the operator has cordoned it, or its version is not the desired version. A node can also be out of
	// service for a different reason, for example because the computer that runs the lab is overloaded.
	Away bool
	// UnavailableSeconds is how long the node was out of service. Absences is how often the operator disrupted it.
	UnavailableSeconds float64
	Absences           int
	// Order is the node's position in the order of disruptions, from 1. It is 0 if the node was never disrupted.
	Order int
	// Unstaged means that the node was cordoned before its payload was complete.
	Unstaged bool
	// Annotations are the current annotations of the Node.
	Annotations map[string]string

	stageBegan, absentSince time.Time
}

// Observe starts an observer. It returns when the observer has read all existing objects. Call Stop to end the
// observer.
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

// follow processes all changes after the resource version in the parameter from. If the watch is interrupted, follow
// continues without missing a change.
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

// Stop ends the observer. If the observer missed changes, its results are incomplete, and Stop returns an error.
func (o *Observer) Stop() error {
	o.stop()
	var all []error
	for _, ended := range o.ended {
		all = append(all, <-ended)
	}
	o.ended = nil
	return errors.Join(all...)
}

// Nodes returns the current state of all nodes, sorted by name.
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

// Most returns the largest set of nodes that the operator disrupted at the same time.
func (o *Observer) Most() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.most)
}

// MostOfAll returns the largest set of nodes that were out of service at the same time, for any reason.
func (o *Observer) MostOfAll() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.any)
}

// Span returns the time from the first disruption of a node until the last disruption ended.
func (o *Observer) Span() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last.Sub(o.first)
}

// Wrong describes the events that must not happen: a node was cordoned before its payload was complete, a pod got less
// time than its grace period, or a pod was still on a node when the node started to change.
func (o *Observer) Wrong() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := slices.Clone(o.wrong)
	for _, l := range o.left {
		all = append(all, l.what)
	}
	return all
}

// Ended returns the number of pods that ended.
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

// sawService updates the statistics after a change of a node. `before` is the state of the node before the change.
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

// The method `which` returns the names of the nodes for which `kind` returns true.
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

// The function ours reports whether the operator disrupts a node.
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

// left is a pod that, according to the observer, was still on a cordoned node when the node started to change. Nodes
// and pods are watched separately, so the pod may in fact have ended earlier. To find out, the observer later checks
// the resource version of the pod's deletion.
type left struct {
	pod, what string
	// revision is the resource version of the Node after the change.
	revision uint64
}

// lookForPods is called when a cordoned node starts to change. It records the pods that are still on the node, because
// they should have ended before.
func (o *Observer) lookForPods(n *Observed, revision string) {
	for key, pod := range o.pods {
		if owner := metav1.GetControllerOf(pod); pod.Spec.NodeName == n.Node && owner != nil &&
			owner.Kind != "DaemonSet" {
			what := fmt.Sprintf("%s was on %s when that went from %s to %s", key, n.Node, n.Version, n.Desired)
			o.left = append(o.left, left{pod: key, what: what, revision: number(revision)})
		}
	}
}

// number parses a resource version. In the lab, resource versions are revisions of etcd, so the revisions of different
// objects can be compared.
func number(revision string) uint64 {
	n, _ := strconv.ParseUint(revision, 10, 64)
	return n
}

// endedAt is called when a pod has ended. It decides whether the pod's entries in o.left are violations.
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
