package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fakeclient "k8s.io/client-go/kubernetes/fake"
	testing2 "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/scheme"
	"github.com/windows-nodes/wmco/test/podstest"
)

var began = time.Unix(1_800_000_000, 0)

type fixture struct {
	*Checker
	api    client.WithWatch
	server *podstest.Server
	events []string
	clock  time.Time
}

func (f *fixture) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	at, _ := regarding.(*corev1.ObjectReference)
	f.events = append(f.events, fmt.Sprintf("%s %s/%s %s: ", at.Kind, at.Namespace, at.Name, reason)+fmt.Sprintf(note, args...))
}

// newFixture returns a checker with Nodes in its cache, and a server that returns pods.
func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{clock: began, server: podstest.New(t, 0, 0)}
	var nodes []client.Object
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok {
			f.server.Pods = append(f.server.Pods, *pod)
			continue
		}
		nodes = append(nodes, o)
	}
	f.api = fake.NewClientBuilder().WithScheme(scheme.New(t)).WithObjects(nodes...).Build()
	podClient, err := pods.NewClient(f.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	f.Checker = newChecker(f.api, podClient, f, func() time.Time {
		return f.clock.Add(time.Duration(f.server.Passed.Load()))
	})
	return f
}

// remove deletes a pod.
func (f *fixture) remove(name string) {
	f.server.Pods = slices.DeleteFunc(f.server.Pods, func(p corev1.Pod) bool { return p.Name == name })
}

// looks lets the checker check all pods. It returns the nodes whose problem has changed.
func (f *fixture) looks(t *testing.T) (changed []string) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f.look(t.Context()) }()
	for {
		select {
		case e := <-f.changed:
			changed = append(changed, e.Object.GetName())
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(changed)
			return changed
		}
	}
}

// says returns the problem that the checker reports for a node.
func (f *fixture) says(node string) *contract.Problem {
	problem, _ := f.Misplaced(node)
	return problem
}

// problem returns the metric for a reason.
func (f *fixture) problem(t *testing.T, reason contract.Reason) float64 {
	t.Helper()
	m := &dto.Metric{}
	if err := f.problems.WithLabelValues(string(reason)).Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "windows"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: contract.TaintKey, Value: contract.TaintValue,
			Effect: corev1.TaintEffectNoSchedule}}}}
}

// linux returns a Linux pod on a node. A DaemonSet owns the pod.
func linux(name, node string) *corev1.Pod {
	yes := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs", UID: "set", Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: node, NodeSelector: map[string]string{corev1.LabelOSStable: "linux"}},
		Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

func pending(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelOSStable: "windows"}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled,
			Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			LastTransitionTime: metav1.NewTime(began.Add(-policy.UnplaceableAfter))}}}}
}

func TestA73_PodsThatCantRunAreReportedOnceAtTheirOwnerAndOfTheirNode(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a"), node("b"), node("c"), linux("logs-1", "a"), linux("logs-2", "b"), pending("web"))
	if got := f.looks(t); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("delivered %v", got)
	}
	if len(f.server.Lists) != 4 {
		t.Errorf("the lists were %v", f.server.Lists)
	}
	for _, query := range f.server.Lists {
		if !strings.Contains(query, "fieldSelector=") {
			t.Error("all pods of the cluster were listed")
		}
	}
	if len(f.events) != 2 || !strings.HasPrefix(f.events[0], "DaemonSet ns/logs LinuxPodPlaced: pod logs-1 ") ||
		!strings.HasPrefix(f.events[1], "Pod ns/web PodUnplaceable: pod web of 3 Windows nodes none can take it: 3 with the taint") ||
		!strings.Contains(f.events[0], "(W930)") {
		t.Errorf("events: %q", f.events)
	}
	for reason, want := range map[contract.Reason]float64{contract.ReasonLinuxPodPlaced: 2, contract.ReasonPodUnplaceable: 1,
		contract.ReasonImageNotForNode: 0} {
		if got := f.problem(t, reason); got != want {
			t.Errorf("%s: %v", reason, got)
		}
	}
	if p, _ := f.Misplaced("a"); p == nil || p.Reason != contract.ReasonLinuxPodPlaced || !strings.Contains(p.Detail, "ns/logs-1") {
		t.Errorf("the problem of node a is %v", p)
	}
	if p, looked := f.Misplaced("c"); p != nil || !looked {
		t.Errorf("the problem of node c is %v", p)
	}

	// If nothing has changed, nothing is reported.
	if got := f.looks(t); len(got) != 0 || len(f.events) != 2 {
		t.Errorf("delivered %v, events %q", got, f.events)
	}
	// If pods can't be read, the problems must not change.
	f.server.Broken = http.StatusServiceUnavailable
	if err := f.look(t.Context()); err == nil || f.says("a") == nil {
		t.Errorf("%v, the problem of node a is %v", err, f.says("a"))
	}
	f.server.Broken = 0
	f.remove("logs-1")
	if err := f.api.Delete(t.Context(), node("b")); err != nil {
		t.Fatal(err)
	}
	if got := f.looks(t); !slices.Equal(got, []string{"a", "b"}) || f.says("a") != nil || f.says("b") != nil {
		t.Errorf("delivered %v, the problem of node a is %v", got, f.says("a"))
	}
	if got := f.problem(t, contract.ReasonLinuxPodPlaced); got != 0 {
		t.Errorf("the metric is still %v", got)
	}
	// If the pod appears again when its event may be deleted, it must be reported again, like the pod that still waits.
	f.clock = f.clock.Add(eventAgain)
	f.looks(t)
	f.server.Pods = append(f.server.Pods, *linux("logs-3", "a"))
	if f.looks(t); len(f.events) != 4 {
		t.Errorf("events: %q", f.events)
	}
}

func TestWhatIsSaidOfManyPodsIsBounded(t *testing.T) {
	t.Parallel()
	objects := []client.Object{node("a")}
	for i := range 3 * eventsAtOnce / 2 {
		pod := linux(fmt.Sprintf("pod-%03d", i), "a")
		pod.OwnerReferences, pod.Namespace = nil, fmt.Sprint(i%3)
		objects = append(objects, pod)
	}
	f := newFixture(t, objects...)
	f.looks(t)
	if len(f.events) != eventsAtOnce {
		t.Errorf("%d events at the same time", len(f.events))
	}
	if p, _ := f.Misplaced("a"); p == nil || !strings.HasSuffix(p.Detail, "; and 72 more") {
		t.Errorf("the problem is %v", p)
	}
	if f.looks(t); len(f.events) != 3*eventsAtOnce/2 {
		t.Errorf("%d events after the second check", len(f.events))
	}
	if got := shorten(strings.Repeat("ä", noteBytes), noteBytes); len(got) > noteBytes {
		t.Errorf("a text of %d bytes", len(got))
	}
	if got := shorten(strings.Repeat("a", noteBytes-1)+"ä", noteBytes); len(got) != noteBytes-1 {
		t.Errorf("the text ends with half a character: %q", got[noteBytes-4:])
	}
}

func TestItLooksFromTimeToTimeAlsoAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Use no server on the network, because the test's clock would not advance during its requests.
		api, lists := fakeclient.NewClientset(), 0
		api.PrependReactor("list", "pods", func(a testing2.Action) (bool, runtime.Object, error) {
			if listsOf(a, "a") {
				lists++
			}
			return true, nil, errors.New("the API server is away")
		})
		cached := fake.NewClientBuilder().WithScheme(scheme.New(t)).WithObjects(node("a")).Build()
		f := newChecker(cached, api, &fixture{}, time.Now)
		go func() {
			for range f.changed {
			}
		}()
		defer close(f.changed)
		ctx, cancel := context.WithTimeout(t.Context(), firstLook+2*lookEvery+time.Second)
		defer cancel()
		if err := f.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if lists != 3 {
			t.Errorf("asked %d times", lists)
		}
	})
}

// listsOf reports whether an action lists the pods on this node.
func listsOf(a testing2.Action, node string) bool {
	list, ok := a.(testing2.ListAction)
	return ok && list.GetListRestrictions().Fields.String() == "spec.nodeName="+node
}

// A list fails if a single object in etcd can't be decoded. The pods on other nodes must still be checked.
func TestANodeWhosePodsCanNotBeListedHidesNoOther(t *testing.T) {
	t.Parallel()
	api := fakeclient.NewClientset()
	api.PrependReactor("list", "pods", func(a testing2.Action) (bool, runtime.Object, error) {
		if listsOf(a, "a") {
			return true, nil, errors.New("unable to decode an object of etcd")
		}
		pods := &corev1.PodList{}
		if listsOf(a, "b") {
			pods.Items = append(pods.Items, *linux("web", "b"))
		} else if !listsOf(a, "c") {
			pods.Items = append(pods.Items, *pending("waits"))
		}
		return true, pods, nil
	})
	cached := fake.NewClientBuilder().WithScheme(scheme.New(t)).WithObjects(node("a"), node("b"), node("c")).Build()
	f := &fixture{clock: began}
	f.Checker = newChecker(cached, api, f, func() time.Time { return f.clock })
	for range 2 {
		done := make(chan error, 1)
		go func() { done <- f.look(t.Context()) }()
		for looking := true; looking; {
			select {
			case <-f.changed:
			case err := <-done:
				if looking = false; err == nil || !strings.Contains(err.Error(), "node a") {
					t.Errorf("the error is %v", err)
				}
			}
		}
		f.clock = f.clock.Add(lookEvery)
	}
	for name, want := range map[string]contract.Reason{"a": contract.ReasonPodsNotRead, "b": contract.ReasonLinuxPodPlaced,
		"c": ""} {
		if p, looked := f.Misplaced(name); !looked || (p == nil) != (want == "") || p != nil && p.Reason != want {
			t.Errorf("the problem of node %s is %v", name, p)
		}
	}
	if !slices.ContainsFunc(f.events, func(e string) bool { return strings.Contains(e, "waits") }) {
		t.Errorf("the pod without a node is not reported: %q", f.events)
	}
}

// If a pod fails and is created over and over, it may be missing during a check, and has a new name each time.
func TestWarningsAboutPodsThatComeAndGoDoNotFlap(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a"))
	image := func(name string) corev1.Pod {
		pod := linux(name, "a")
		pod.Spec.NodeSelector[corev1.LabelOSStable] = "windows"
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Image: "web", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Message: "no match for platform in manifest"}}}}
		return *pod
	}
	for i, found := range [][]corev1.Pod{{*linux("a", "a"), image("b")}, {}, {image("a"), *linux("b", "a")}, {}} {
		f.server.Pods = found
		if f.looks(t); len(f.events) != 2 {
			t.Errorf("check %d: events %q", i, f.events)
		}
		if p := f.says("a"); len(found) > 0 && (p == nil || p.Reason != contract.ReasonImageNotForNode) {
			t.Errorf("check %d: the problem of node a is %v", i, p)
		}
		f.clock = f.clock.Add(lookEvery)
	}
}

// If a MachineSet is scaled up from zero, its host needs more time to join than the scheduler needs to give up. During
// this time, the pod must not be reported.
func TestAPodWaitsForAHostThatJoins(t *testing.T) {
	t.Parallel()
	joins := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b",
		CreationTimestamp: metav1.NewTime(began)}}
	joins.Status.NodeName = "b"
	f := newFixture(t, node("a"), joins, pending("web"))
	if f.looks(t); len(f.events) != 0 || f.problem(t, contract.ReasonPodUnplaceable) != 0 {
		t.Errorf("events: %q", f.events)
	}
	f.clock = f.clock.Add(policy.UnplaceableJoining - policy.UnplaceableAfter)
	if f.looks(t); len(f.events) != 1 {
		t.Errorf("events: %q", f.events)
	}
	// A host that has already joined must not delay warnings.
	f.clock, f.reported = began, map[found]bool{}
	if err := f.api.Create(t.Context(), node("b")); err != nil {
		t.Fatal(err)
	}
	if f.looks(t); len(f.events) != 2 {
		t.Errorf("events: %q", f.events)
	}
}

// A host that never joins must not delay warnings forever.
func TestAPodWaitsForNoHostThatDoesNotJoin(t *testing.T) {
	t.Parallel()
	never := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "b",
		CreationTimestamp: metav1.NewTime(began.Add(-policy.UnplaceableJoining))}}
	f := newFixture(t, node("a"), never, pending("web"))
	if f.looks(t); len(f.events) != 1 || f.problem(t, contract.ReasonPodUnplaceable) != 1 {
		t.Errorf("events: %q", f.events)
	}
}

// The API server deletes events after an hour. An alert about pods refers to the events, so the events must exist as
// long as the problem.
func TestAnEventAboutPodsThatStayIsThereForAsLongAsTheyAre(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a"), linux("logs", "a"))
	for range int(3*time.Hour/lookEvery) + 1 {
		f.looks(t)
		f.clock = f.clock.Add(lookEvery)
	}
	if len(f.events) != 4 {
		t.Errorf("%d events in three hours", len(f.events))
	}
}
