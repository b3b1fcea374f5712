package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// firstLook leaves an operator that has just begun to lead the API server for what is urgent.
	firstLook = 30 * time.Second
	lookEvery = 5 * time.Minute
	// callTimeout bounds a list of pods.
	callTimeout = 30 * time.Second
	// pageSize and pages bound how many pending pods one look reads.
	pageSize, pages = 500, 4
	// eventsAtOnce bounds how many events one look writes; the rest follow with the next ones.
	eventsAtOnce = 50
	// named is how many pods a message names.
	named = 3
	// noteBytes is what the API server takes as the text of an event.
	noteBytes = 1024
)

// Checker looks for pods that can't run where they are, or can't be placed.
type Checker struct {
	// cached reads Nodes, live pods.
	cached, live client.Reader
	events       events.EventRecorder
	problems     *prometheus.GaugeVec
	now          func() time.Time
	changed      chan event.GenericEvent
	// reported are the findings that have had their event. Only Start touches it.
	reported map[found]bool

	mu sync.Mutex
	// misplaced is what is said of each node.
	misplaced map[string]contract.Problem
}

// found is what an event is written about once.
type found struct {
	owner  types.UID
	reason contract.Reason
}

// finding is one pod, and what is wrong with it.
type finding struct {
	pod    *corev1.Pod
	reason contract.Reason
	why    string
}

func newChecker(cached, live client.Reader, recorder events.EventRecorder, now func() time.Time) *Checker {
	return &Checker{cached: cached, live: live, events: recorder, now: now,
		problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wmco_workload_problems",
			Help: "Pods that can't run on the Windows node that they are on, or that no Windows node can take.",
		}, []string{"reason"}),
		changed: make(chan event.GenericEvent), reported: map[found]bool{}, misplaced: map[string]contract.Problem{}}
}

// Setup adds the checker to a manager.
func Setup(mgr ctrl.Manager) (*Checker, error) {
	c := newChecker(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(contract.OperatorServiceAccount),
		time.Now)
	if err := metrics.Registry.Register(c.problems); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("adding the check of workloads: %w", err)
	}
	return c, nil
}

// NeedLeaderElection says that one operator at a time does this.
func (*Checker) NeedLeaderElection() bool { return true }

// Changed delivers each Node of which something else is said than before.
func (c *Checker) Changed() <-chan event.GenericEvent { return c.changed }

// Misplaced says which pods on a node can't run there; nil for none.
func (c *Checker) Misplaced(node string) *contract.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	problem, exists := c.misplaced[node]
	if !exists {
		return nil
	}
	return &problem
}

// Start looks from time to time, until ctx ends.
func (c *Checker) Start(ctx context.Context) error {
	for wait := firstLook; ; wait = lookEvery {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			logf.FromContext(ctx).Error(err, "looking for pods that can't run failed, and is tried again", "after",
				lookEvery)
		}
	}
}

// look finds everything anew. What it could not read changes nothing of what is said.
func (c *Checker) look(ctx context.Context) error {
	nodes := &corev1.NodeList{}
	if err := c.cached.List(ctx, nodes, client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)},
		client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var all []finding
	said := map[string]contract.Problem{}
	for i := range nodes.Items {
		on, err := c.onNode(ctx, nodes.Items[i].Name)
		if err != nil {
			return err
		}
		if len(on) > 0 {
			said[nodes.Items[i].Name] = sum(on)
			all = append(all, on...)
		}
	}
	pending, err := c.pending(ctx, nodes.Items)
	if err != nil {
		return err
	}
	c.show(append(all, pending...))
	return c.say(ctx, said)
}

// onNode finds the pods of a node that can't run there.
func (c *Checker) onNode(ctx context.Context, node string) ([]finding, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pods := &corev1.PodList{}
	// The API server answers this from memory, and has an index of it.
	err := c.live.List(ctx, pods, &client.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node),
		Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	var all []finding
	for i := range pods.Items {
		if reason, why := policy.MisplacedPod(&pods.Items[i]); reason != "" {
			all = append(all, finding{&pods.Items[i], reason, why})
		}
	}
	return all, nil
}

// pending finds pods that no node will take, among as many as are read.
func (c *Checker) pending(ctx context.Context, nodes []corev1.Node) ([]finding, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var all []finding
	next, unplaced := "", fields.SelectorFromSet(fields.Set{"spec.nodeName": "",
		"status.phase": string(corev1.PodPending)})
	for range pages {
		pods := &corev1.PodList{}
		err := c.live.List(ctx, pods, &client.ListOptions{Limit: pageSize, Continue: next, FieldSelector: unplaced})
		if err != nil {
			return nil, fmt.Errorf("listing pending pods: %w", err)
		}
		for i := range pods.Items {
			if reason, why := policy.UnplaceablePod(&pods.Items[i], nodes, c.now()); reason != "" {
				all = append(all, finding{&pods.Items[i], reason, why})
			}
		}
		if next = pods.Continue; next == "" {
			break
		}
	}
	return all, nil
}

// show sets the metric, and writes an event about each owner that has none yet.
func (c *Checker) show(all []finding) {
	counts := map[contract.Reason]int{contract.ReasonLinuxPodPlaced: 0, contract.ReasonImageNotForNode: 0,
		contract.ReasonPodUnplaceable: 0}
	reported, written := map[found]bool{}, 0
	for _, f := range all {
		counts[f.reason]++
		regarding, uid := owner(f.pod)
		key := found{uid, f.reason}
		if !c.reported[key] && !reported[key] {
			if written == eventsAtOnce {
				continue
			}
			written++
			c.events.Eventf(regarding, nil, corev1.EventTypeWarning, string(f.reason), "Check", "%s",
				shorten(fmt.Sprintf("pod %s %s (%s). %s", f.pod.Name, f.why, f.reason.Code(), f.reason.Fix())))
		}
		reported[key] = true
	}
	c.reported = reported
	for reason, count := range counts {
		c.problems.WithLabelValues(string(reason)).Set(float64(count))
	}
}

// owner is what an event about a pod is written at: what made the pod, or itself.
func owner(pod *corev1.Pod) (runtime.Object, types.UID) {
	made := metav1.GetControllerOf(pod)
	if made == nil || made.Kind == "Node" { // a static pod
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
			UID: pod.UID}, pod.UID
	}
	return &corev1.ObjectReference{APIVersion: made.APIVersion, Kind: made.Kind, Namespace: pod.Namespace,
		Name: made.Name, UID: made.UID}, made.UID
}

// say keeps what is said of each node, and delivers those of which something else is said.
func (c *Checker) say(ctx context.Context, said map[string]contract.Problem) error {
	c.mu.Lock()
	before := c.misplaced
	c.misplaced = said
	c.mu.Unlock()
	var news []string
	for node, problem := range said {
		if before[node] != problem {
			news = append(news, node)
		}
	}
	for node := range before {
		if _, still := said[node]; !still {
			news = append(news, node)
		}
	}
	for _, name := range news {
		select {
		case c.changed <- event.GenericEvent{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// sum says of a node what was found there.
func sum(all []finding) contract.Problem {
	slices.SortFunc(all, func(a, b finding) int {
		return strings.Compare(a.pod.Namespace+"/"+a.pod.Name, b.pod.Namespace+"/"+b.pod.Name)
	})
	var texts []string
	for _, f := range all[:min(len(all), named)] {
		texts = append(texts, fmt.Sprintf("%s/%s %s", f.pod.Namespace, f.pod.Name, f.why))
	}
	text := strings.Join(texts, "; ")
	if more := len(all) - named; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return contract.Problem{Reason: all[0].reason, Detail: text}
}

// shorten cuts a text to what the API server takes. A pod's image may be long, and of any characters.
func shorten(text string) string {
	if len(text) > noteBytes {
		text = text[:noteBytes]
	}
	return strings.ToValidUTF8(text, "")
}
