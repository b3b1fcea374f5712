package runtimeclass

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/pods/podstest"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/scheme"
)

// fixture is the controller with an API that answers lists of pods in pages.
type fixture struct {
	*Reconciler
	api    client.WithWatch
	pods   *podstest.Server
	events []string
	clock  time.Time
}

func (f *fixture) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	f.events = append(f.events, reason+" "+fmt.Sprintf(note, args...))
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	scheme := scheme.New(t)
	f := &fixture{clock: time.Unix(1_800_000_000, 0), pods: podstest.New(t, 0, 0)}
	f.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	f.begin(t)
	return f
}

// begin starts the controller anew.
func (f *fixture) begin(t *testing.T) {
	t.Helper()
	podClient, err := pods.NewClient(f.pods.Config())
	if err != nil {
		t.Fatal(err)
	}
	f.Reconciler = newReconciler(f.api, podClient, f, func() time.Time {
		return f.clock.Add(time.Duration(f.pods.Passed.Load()))
	})
}

func (f *fixture) reconcile(t *testing.T) time.Duration {
	t.Helper()
	result, err := f.Reconcile(t.Context(), ctrl.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result.RequeueAfter
}

func (f *fixture) classes(t *testing.T) []string {
	t.Helper()
	list := &nodev1.RuntimeClassList{}
	if err := f.api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, class := range list.Items {
		names = append(names, class.Name)
	}
	slices.Sort(names)
	return names
}

func node(name, build string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelOSStable: "windows", contract.BuildLabel: build}}}
}

func pod(name, class string, phase corev1.PodPhase) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.PodSpec{RuntimeClassName: &class}, Status: corev1.PodStatus{Phase: phase}}
}

func settings(classes v1alpha1.RuntimeClasses) *v1alpha1.WindowsMachineConfig {
	return &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject},
		Spec: v1alpha1.WindowsMachineConfigSpec{RuntimeClasses: classes}}
}

func TestA72_ClassesFollowTheBuildsOfTheCluster(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a", "10.0.20348"), node("b", "10.0.17763"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "linux", Labels: map[string]string{corev1.LabelOSStable: "linux", contract.BuildLabel: "10.0.26100"}}})
	f.reconcile(t)
	if got := f.classes(t); !slices.Equal(got, []string{"windows2019", "windows2022"}) {
		t.Fatalf("classes: %v", got)
	}
	// A repeated look writes nothing.
	before := f.version(t, "windows2022")
	f.reconcile(t)
	if f.version(t, "windows2022") != before {
		t.Error("a class that is as it should be was written")
	}
	if err := f.api.Delete(t.Context(), node("b", "")); err != nil {
		t.Fatal(err)
	}
	f.reconcile(t)
	// The time since when it is unused is in the cluster, so a restart does not begin it anew.
	f.clock = f.clock.Add(policy.RuntimeClassGrace / 2)
	f.begin(t)
	if after := f.reconcile(t); after != policy.RuntimeClassGrace/2 {
		t.Errorf("looks again after %s", after)
	}
	f.clock = f.clock.Add(policy.RuntimeClassGrace / 2)
	f.reconcile(t)
	if got := f.classes(t); !slices.Equal(got, []string{"windows2022"}) {
		t.Errorf("classes: %v", got)
	}
}

func (f *fixture) version(t *testing.T, name string) string {
	t.Helper()
	class := &nodev1.RuntimeClass{}
	if err := f.api.Get(t.Context(), client.ObjectKey{Name: name}, class); err != nil {
		t.Fatal(err)
	}
	return class.ResourceVersion
}

func TestA72_AClassThatPodsUseStaysAndIsReportedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a", "10.0.20348"), node("b", "10.0.26100"))
	f.pods.Pods = []corev1.Pod{pod("done", "windows2025", corev1.PodSucceeded),
		pod("failed", "windows2025", corev1.PodFailed), pod("waits", "windows2022", corev1.PodPending)}
	f.reconcile(t)
	if len(f.pods.Lists) != 0 {
		t.Error("pods are listed although nothing is to be withdrawn")
	}
	if err := f.api.Create(t.Context(), settings(v1alpha1.RuntimeClassesRemoved)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if after := f.reconcile(t); after != retryInUse {
			t.Errorf("looks again after %s", after)
		}
	}
	if got := f.classes(t); !slices.Equal(got, []string{"windows2022"}) {
		t.Errorf("classes: %v", got)
	}
	if len(f.events) != 1 || !strings.Contains(f.events[0], "RuntimeClassInUse") || !strings.Contains(f.events[0], "W925") {
		t.Errorf("events: %q", f.events)
	}
	// Nothing is deleted on an incomplete list.
	f.pods.Broken = http.StatusServiceUnavailable
	if _, err := f.Reconcile(t.Context(), ctrl.Request{}); err == nil {
		t.Error("a list that failed is no error")
	}
	f.pods.Broken = 0
	f.pods.Pods = f.pods.Pods[:2]
	f.reconcile(t)
	if got := f.classes(t); len(got) != 0 {
		t.Errorf("classes: %v", got)
	}
}

func TestA72_AUsersClassOfThatNameStays(t *testing.T) {
	t.Parallel()
	theirs := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "windows2022"}, Handler: "theirs"}
	f := newFixture(t, node("a", "10.0.20348"), theirs)
	f.reconcile(t)
	f.reconcile(t)
	class := &nodev1.RuntimeClass{}
	if err := f.api.Get(t.Context(), client.ObjectKeyFromObject(theirs), class); err != nil || class.Handler != "theirs" ||
		len(class.Labels) != 0 {
		t.Errorf("%+v %v", class, err)
	}
	if len(f.events) != 1 || !strings.Contains(f.events[0], "W924") {
		t.Errorf("events: %q", f.events)
	}
}

func TestOnlyWhatChangesBuildsBringsALook(t *testing.T) {
	t.Parallel()
	changed := buildChanged()
	a, b, none := node("a", "10.0.20348"), node("a", "10.0.26100"), &corev1.Node{}
	heartbeat := a.DeepCopy()
	heartbeat.ResourceVersion = "2"
	for what, c := range map[string]struct{ got, want bool }{
		"a heartbeat":            {changed.Update(event.UpdateEvent{ObjectOld: a, ObjectNew: heartbeat}), false},
		"another build":          {changed.Update(event.UpdateEvent{ObjectOld: a, ObjectNew: b}), true},
		"a Windows node":         {changed.Create(event.CreateEvent{Object: a}), true},
		"a Linux node":           {changed.Create(event.CreateEvent{Object: none}), false},
		"a Windows node is gone": {changed.Delete(event.DeleteEvent{Object: a}), true},
		"a Linux node is gone":   {changed.Delete(event.DeleteEvent{Object: none}), false},
	} {
		if c.got != c.want {
			t.Errorf("%s brings a look: %v", what, c.got)
		}
	}
}
