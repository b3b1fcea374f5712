package workload

import (
	"context"
	"errors"
	"fmt"
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
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

var began = time.Unix(1_800_000_000, 0)

type fixture struct {
	*Checker
	api    client.WithWatch
	events []string
	broken error
	// asked are the lists of pods that were asked for.
	asked []string
}

func (f *fixture) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	at, _ := regarding.(*corev1.ObjectReference)
	f.events = append(f.events, fmt.Sprintf("%s %s/%s %s: ", at.Kind, at.Namespace, at.Name, reason)+fmt.Sprintf(note, args...))
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	f := &fixture{}
	f.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if _, pods := list.(*corev1.PodList); pods {
				asked := (&client.ListOptions{}).ApplyOptions(options)
				if asked.FieldSelector == nil || asked.FieldSelector.Empty() {
					return errors.New("all pods of the cluster were asked for")
				}
				f.asked = append(f.asked, asked.FieldSelector.String())
				if f.broken != nil {
					return f.broken
				}
			}
			return c.List(ctx, list, options...)
		}}).Build()
	f.Checker = newChecker(f.api, f.api, f, func() time.Time { return began })
	return f
}

// looks takes what is delivered, while it looks.
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

// problem is the metric of a reason.
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

// linux is a pod for Linux on a node, made by a DaemonSet.
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
	if len(f.asked) != 4 {
		t.Errorf("asked for %v", f.asked)
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
	if p := f.Misplaced("a"); p == nil || p.Reason != contract.ReasonLinuxPodPlaced || !strings.Contains(p.Detail, "ns/logs-1") {
		t.Errorf("of a it says %v", p)
	}
	if p := f.Misplaced("c"); p != nil {
		t.Errorf("of c it says %v", p)
	}

	// Nothing new, nothing said.
	if got := f.looks(t); len(got) != 0 || len(f.events) != 2 {
		t.Errorf("delivered %v, events %q", got, f.events)
	}
	// What can't be read changes nothing of what is said.
	f.broken = errors.New("the API server is away")
	if err := f.look(t.Context()); err == nil || f.Misplaced("a") == nil {
		t.Errorf("%v, of a it says %v", err, f.Misplaced("a"))
	}
	f.broken = nil
	if err := errors.Join(f.api.Delete(t.Context(), linux("logs-1", "a")), f.api.Delete(t.Context(), node("b"))); err != nil {
		t.Fatal(err)
	}
	if got := f.looks(t); !slices.Equal(got, []string{"a", "b"}) || f.Misplaced("a") != nil || f.Misplaced("b") != nil {
		t.Errorf("delivered %v, of a it says %v", got, f.Misplaced("a"))
	}
	if got := f.problem(t, contract.ReasonLinuxPodPlaced); got != 0 {
		t.Errorf("the metric stays at %v", got)
	}
	// When it comes back, it is reported again.
	if err := f.api.Create(t.Context(), linux("logs-3", "a")); err != nil {
		t.Fatal(err)
	}
	if f.looks(t); len(f.events) != 3 {
		t.Errorf("events: %q", f.events)
	}
}

func TestWhatIsSaidOfManyPodsIsBounded(t *testing.T) {
	t.Parallel()
	objects := []client.Object{node("a")}
	for i := range 3 * eventsAtOnce / 2 {
		pod := linux(fmt.Sprintf("pod-%03d", i), "a")
		pod.OwnerReferences = nil
		objects = append(objects, pod)
	}
	f := newFixture(t, objects...)
	f.looks(t)
	if len(f.events) != eventsAtOnce {
		t.Errorf("%d events at once", len(f.events))
	}
	if p := f.Misplaced("a"); p == nil || !strings.HasSuffix(p.Detail, "; and 72 more") {
		t.Errorf("it says %v", p)
	}
	if f.looks(t); len(f.events) != 3*eventsAtOnce/2 {
		t.Errorf("%d events after the second look", len(f.events))
	}
	if got := shorten(strings.Repeat("ä", noteBytes)); len(got) > noteBytes {
		t.Errorf("a text of %d bytes", len(got))
	}
	if got := shorten(strings.Repeat("a", noteBytes-1) + "ä"); len(got) != noteBytes-1 {
		t.Errorf("half a character is left of %q", got[noteBytes-4:])
	}
}

func TestItLooksFromTimeToTimeAlsoAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, node("a"))
		f.broken = errors.New("the API server is away")
		ctx, cancel := context.WithTimeout(t.Context(), firstLook+2*lookEvery+time.Second)
		defer cancel()
		if err := f.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if len(f.asked) != 3 {
			t.Errorf("asked for %v", f.asked)
		}
	})
}
