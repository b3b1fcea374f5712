package workload

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/pods"
)

// large creates pods of one megabyte each on a node.
func large(f *fixture, node string, count int) {
	for i := range count {
		pod := linux(fmt.Sprintf("large-%s-%04d", node, i), node)
		pod.Spec.OS = nil
		pod.Spec.NodeSelector = nil
		pod.Spec.Containers = []corev1.Container{{Args: []string{strings.Repeat("x", 1<<20)}}}
		f.server.Pods = append(f.server.Pods, *pod)
	}
	slices.SortFunc(f.server.Pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}

func TestA73_LargePodsOfATenantCostALookBoundedMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a"), linux("logs", "a"))
	large(f, "a", 20)
	large(f, "", 20)
	f.looks(t)
	if read := f.server.Largest.Load(); read != pods.MaxBytes+1 { // one more byte shows that it is too large
		t.Errorf("%d bytes of one answer were read", read)
	}
	if p := f.says("a"); p == nil || p.Reason != contract.ReasonLinuxPodPlaced {
		t.Errorf("the problem of node a is %v", p)
	}
}

// A tenant has so many large pods that a pass runs out of time. The result must not say that the pods that were not
// read are fine.
func TestA73_ALookThatHasNotSeenAllPodsDoesNotSayThatAllIsWell(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a"), linux("logs", "a"), node("b"))
	f.looks(t)
	// If a finding can't be checked any longer, it is kept for a while.
	large(f, "a", 20)
	f.server.Slow = 11 * time.Second
	f.clock = f.clock.Add(lookEvery)
	f.looks(t)
	if p := f.says("a"); p == nil || p.Reason != contract.ReasonLinuxPodPlaced {
		t.Errorf("the problem of node a is %v", p)
	}
	if got := f.problem(t, contract.ReasonPodsNotRead); got != 1 {
		t.Errorf("the unread lists are %v", got)
	}
	f.clock = f.clock.Add(staleAfter)
	if got := f.looks(t); !slices.Equal(got, []string{"a"}) {
		t.Errorf("delivered %v", got)
	}
	if p := f.says("a"); p == nil || p.Reason != contract.ReasonPodsNotRead || !strings.Contains(p.Detail, "since 20") {
		t.Errorf("the problem of node a is %v", p)
	}
	if p, looked := f.Misplaced("b"); p != nil || !looked {
		t.Errorf("the problem of node b is %v", p)
	}
	if got := f.problem(t, contract.ReasonLinuxPodPlaced); got != 1 {
		t.Errorf("the metric is %v", got)
	}
	f.server.Slow = 0
	f.looks(t)
	if p := f.says("a"); p == nil || p.Reason != contract.ReasonLinuxPodPlaced {
		t.Errorf("the problem of node a is %v", p)
	}
	if len(f.events) != 1 {
		t.Errorf("events: %q", f.events)
	}
}

// If the API server does not answer for a long time, the result must be that the state of the pods is unknown.
func TestWhatCantBeReadForLongIsSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a"), linux("logs", "a"), node("b"))
	f.looks(t)
	f.server.Broken = 503
	f.clock = f.clock.Add(staleAfter + time.Second)
	changed := make(chan string, 9)
	go func() {
		for e := range f.changed {
			changed <- e.Object.GetName()
		}
		close(changed)
	}()
	if err := f.look(t.Context()); err == nil {
		t.Error("no error")
	}
	close(f.changed)
	var got []string
	for name := range changed {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("delivered %v", got)
	}
	for _, name := range got {
		if p := f.says(name); p == nil || p.Reason != contract.ReasonPodsNotRead {
			t.Errorf("the problem of node %s is %v", name, p)
		}
	}
	if got := f.problem(t, contract.ReasonPodsNotRead); got != 3 {
		t.Errorf("the unread lists are %v", got)
	}
}

// All nodes have large pods. Each pass must continue where the last pass stopped.
func TestATenantOnSomeNodesDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 9 {
		n := node(fmt.Sprintf("node-%d", i))
		if err := f.api.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		large(f, n.Name, 10)
	}
	f.server.Slow = 9 * time.Second // reading one node takes more than half a minute
	f.looks(t)
	problems := 0
	for i := range 9 {
		if _, looked := f.Misplaced(fmt.Sprintf("node-%d", i)); looked {
			problems++
		}
	}
	if problems == 0 || problems == 9 {
		t.Fatalf("%d nodes were checked", problems)
	}
	f.looks(t)
	f.looks(t)
	for i := range 9 {
		if _, looked := f.Misplaced(fmt.Sprintf("node-%d", i)); !looked {
			t.Errorf("node-%d was never checked", i)
		}
	}
}

// Pods that are created again every second have a new UID each time, so they could cause an endless number of events.
func TestEventsAboutATenantsPodsLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a"))
	for round := range 3 {
		f.server.Pods = nil
		for i := range 4 * eventsAtOnce {
			pod := linux(fmt.Sprintf("a-%04d", i), "a")
			pod.Namespace, pod.OwnerReferences, pod.UID = "attack", nil, types.UID(fmt.Sprintf("%d-%d", round, i))
			f.server.Pods = append(f.server.Pods, *pod)
		}
		f.server.Pods = append(f.server.Pods, *linux("z-logs", "a"))
		f.clock = f.clock.Add(staleAfter + time.Second)
		f.looks(t)
	}
	if len(f.events) > 3*(eventsOfNamespace+1) || !slices.ContainsFunc(f.events, func(e string) bool {
		return strings.HasPrefix(e, "DaemonSet ns/logs ")
	}) {
		t.Errorf("%d events, none about another user's pods", len(f.events))
	}
	if len(f.reported) > 2*eventsAtOnce {
		t.Errorf("%d findings are stored", len(f.reported))
	}
}

// The creator of a pod may write another user's controller into the owner reference.
func TestAnOwnersUIDInAnotherNamespaceIsAnotherOwner(t *testing.T) {
	t.Parallel()
	theirs, ours := linux("a", "a"), linux("b", "a")
	theirs.Namespace = "attack"
	f := newFixture(t, node("a"), theirs, ours)
	f.looks(t)
	if len(f.events) != 2 || !strings.HasPrefix(f.events[0], "DaemonSet attack/logs ") || !strings.HasPrefix(f.events[1], "DaemonSet ns/logs ") {
		t.Errorf("events: %q", f.events)
	}
}

func TestOwnersAndImagesOfOddNamesAreCutToWhatAnEventTakes(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(o *metav1.OwnerReference){
		"a long name": func(o *metav1.OwnerReference) { o.Name = strings.Repeat("x", 1<<20) },
		"no name":     func(o *metav1.OwnerReference) { o.Name = "../x\n" },
		"a long kind": func(o *metav1.OwnerReference) { o.Kind = strings.Repeat("x", 1<<20) },
		"a long UID":  func(o *metav1.OwnerReference) { o.UID = types.UID(strings.Repeat("x", 1<<20)) },
	} {
		pod := linux("logs", "a")
		edit(&pod.OwnerReferences[0])
		if at := owner(pod); at.Kind != "Pod" || at.Name != "logs" {
			t.Errorf("%s: at a %.20s %.20s", name, at.Kind, at.Name)
		}
	}
	f := newFinding(linux("logs", "a"), contract.ReasonLinuxPodPlaced, "a\x1b[31m\nb"+strings.Repeat("x", 1<<20))
	if len(f.why) > whyBytes || !strings.HasPrefix(f.why, "a[31m bx") {
		t.Errorf("%q", f.why)
	}
}
