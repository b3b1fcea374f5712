package scene

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/windows-nodes/wmco/internal/contract"
)

// history sends events to an observer. Each event has a higher revision than the event before it.
type history struct {
	*Observer
	revision int
}

func newHistory() *history {
	return &history{Observer: &Observer{stop: func() {}, nodes: map[string]*Observed{}, pods: map[string]*corev1.Pod{}}}
}

// node sends an event of a node. annotations alternates between keys and values. The keys have no prefix.
func (h *history) node(name string, ready, cordoned bool, annotations ...string) {
	h.revision++
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, ResourceVersion: strconv.Itoa(h.revision),
			Labels: map[string]string{contract.OSIDLabel: contract.OSIDWindows}, Annotations: map[string]string{},
		},
		Spec:   corev1.NodeSpec{Unschedulable: cordoned},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}},
	}
	for pair := range slices.Chunk(annotations, 2) {
		n.Annotations[contract.Prefix+pair[0]] = pair[1]
	}
	h.saw(watch.Event{Type: watch.Modified, Object: n})
}

func aPod(node string, grace int64, given *int64) *corev1.Pod {
	owner := metav1.OwnerReference{Kind: "ReplicaSet", Name: "web", UID: types.UID("web"), Controller: new(true)}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1",
			OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: &grace},
	}
	if given != nil {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, given
	}
	return p
}

func (h *history) pod(kind watch.EventType, p *corev1.Pod) {
	h.revision++
	p.ResourceVersion = strconv.Itoa(h.revision)
	h.saw(watch.Event{Type: kind, Object: p})
}

func TestTheObserverCountsWhoDoesNotServe(t *testing.T) {
	t.Parallel()
	h := newHistory()
	for _, name := range []string{"a", "b", "c"} {
		h.node(name, true, false)
	}
	h.node("a", true, true, "cordoned", "true")
	h.node("a", false, true, "cordoned", "true")
	h.node("b", false, false, "version", "1", "desired-version", "2")
	h.node("c", false, false, "version", "1", "desired-version", "1") // not because of the operator
	h.node("a", true, false)
	h.node("c", true, true, "cordoned", "true")
	if most, all := h.Most(), h.MostOfAll(); !slices.Equal(most, []string{"a", "b"}) ||
		!slices.Equal(all, []string{"a", "b", "c"}) {
		t.Errorf("the most at once were %v, and of all %v", most, all)
	}
	nodes := h.Nodes()
	if a, c := nodes[0], nodes[2]; a.Absences != 1 || a.Order != 1 || !a.Serves || c.Absences != 1 || c.Order != 3 ||
		c.Serves {
		t.Errorf("a: %+v, c: %+v", a, c)
	}
}

func TestTheObserverSeesWhatMustNotHappen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		happens func(h *history)
		wrong   string
	}{
		"all is well": {func(h *history) {
			h.pod(watch.Added, aPod("a", 5, nil))
			h.node("a", true, false, "desired-version", "1", "stage-version", "2", "staged-version", "2")
			h.node("a", true, true, "desired-version", "1", "stage-version", "2", "staged-version", "2")
			h.pod(watch.Modified, aPod("a", 5, new(int64(5))))
			h.pod(watch.Deleted, aPod("a", 5, new(int64(0))))
			h.node("a", true, true, "desired-version", "2", "stage-version", "2", "staged-version", "2")
		}, ""},
		"it is told of the pod's end after the node's change": {func(h *history) {
			p := aPod("a", 5, nil)
			h.pod(watch.Added, p)
			h.node("a", true, true, "desired-version", "1")
			h.revision++
			ended := strconv.Itoa(h.revision)
			h.node("a", true, true, "desired-version", "2")
			p = p.DeepCopy()
			p.ResourceVersion = ended
			h.saw(watch.Event{Type: watch.Deleted, Object: p})
		}, ""},
		"cordoned too early": {func(h *history) {
			h.node("a", true, false, "stage-version", "2")
			h.node("a", true, true, "stage-version", "2")
		}, "before 2 was on its disk"},
		"a pod is ended at once": {func(h *history) {
			h.pod(watch.Added, aPod("a", 5, nil))
			h.pod(watch.Modified, aPod("a", 5, new(int64(0))))
		}, "less than its grace period"},
		"a pod is there when the node changes": {func(h *history) {
			h.pod(watch.Added, aPod("a", 5, nil))
			h.node("a", true, true, "desired-version", "1")
			h.node("a", true, true, "desired-version", "2")
		}, "web-1 was on a"},
		"a pod ends after the node changed": {func(h *history) {
			h.pod(watch.Added, aPod("a", 5, nil))
			h.node("a", true, true, "desired-version", "1")
			h.node("a", true, true, "desired-version", "2")
			h.pod(watch.Deleted, aPod("a", 5, new(int64(0))))
		}, "web-1 was on a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHistory()
			h.node("a", true, false, "desired-version", "1")
			c.happens(h)
			wrong := strings.Join(h.Wrong(), "; ")
			if (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
				t.Errorf("it saw %q", wrong)
			}
		})
	}
}
