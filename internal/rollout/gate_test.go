package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
)

const namespace = "ns"

// plane is an API server; it counts who lists.
type plane struct {
	client.WithWatch
	lists  atomic.Int32
	broken error
}

func newPlane(t *testing.T, objects ...client.Object) *plane {
	t.Helper()
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	p := &plane{}
	p.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.WindowsInstance{}).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			p.lists.Add(1)
			if p.broken != nil {
				return p.broken
			}
			return c.List(ctx, list, options...)
		}}).Build()
	return p
}

// serving is a node that serves, and its instance.
func serving(name string) []client.Object {
	return []client.Object{
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{contract.OSIDLabel: contract.OSIDWindows}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
		&v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: v1alpha1.WindowsInstanceStatus{NodeName: name}},
	}
}

func newGate(t *testing.T, cached, live client.Reader, sets rollout.Sets) *rollout.Gate {
	t.Helper()
	gate, err := rollout.New(rollout.Options{Cached: cached, Live: live, Sets: sets, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// disturb asks whether a node may be disturbed, and takes its place where everybody can see it.
func disturb(p *plane, name string) rollout.Question {
	return rollout.Question{
		Name: name, Node: name, Order: rollout.Order{Name: name},
		Decide: func(look rollout.Look) bool { return policy.MayDisrupt(name, look.Fleet, look.MaxUnavailable).Allowed },
		Act: func(ctx context.Context) error {
			i := &v1alpha1.WindowsInstance{}
			if err := p.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, i); err != nil {
				return err
			}
			i.Status.Disruption = &v1alpha1.Disruption{Purpose: v1alpha1.DisruptionUpdate, Since: metav1.Now()}
			return p.Status().Update(ctx, i)
		},
	}
}

func TestOfManyWhoAskAtOnceAsManyGoAsMay(t *testing.T) {
	t.Parallel()
	var objects []client.Object
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	for _, name := range names {
		objects = append(objects, serving(name)...)
	}
	p := newPlane(t, objects...)
	gate := newGate(t, p, p, nil)
	var went atomic.Int32
	var group sync.WaitGroup
	for _, name := range names {
		group.Go(func() {
			acted, err := gate.Ask(t.Context(), disturb(p, name))
			if err != nil {
				t.Error(err)
			}
			if acted {
				went.Add(1)
			}
		})
	}
	group.Wait()
	if went.Load() != 1 {
		t.Errorf("%d went ahead, and the budget is 1", went.Load())
	}
}

// What many who wait cost the API server: four lists of a look for all of them, not for each.
func TestManyWhoAskAreAnsweredByFewLooks(t *testing.T) {
	t.Parallel()
	const many = 200
	var objects []client.Object
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprintf("n-%03d", i)
		objects = append(objects, serving(names[i])...)
	}
	live, cached := newPlane(t, objects...), newPlane(t, objects...)
	gate := newGate(t, cached, live, nil)
	held, released := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { // somebody decides while all the others come
		q := disturb(live, names[many-1])
		act := q.Act
		q.Act = func(ctx context.Context) error { close(held); <-released; return act(ctx) }
		if acted, err := gate.Ask(t.Context(), q); !acted || err != nil {
			t.Errorf("%v, %v", acted, err)
		}
	})
	<-held
	var came, woken atomic.Int32
	for _, name := range names[:many-1] {
		group.Go(func() {
			q := disturb(live, name)
			q.Fresh, q.Wake = true, func() { woken.Add(1) }
			came.Add(1)
			if acted, err := gate.Ask(t.Context(), q); acted || err != nil {
				t.Errorf("%v, %v", acted, err)
			}
		})
	}
	for came.Load() < many-1 {
		runtime.Gosched()
	}
	close(released)
	group.Wait()
	t.Logf("%d who ask at once cost %d lists of the API server and %d of the cache", many, live.lists.Load(), cached.lists.Load())
	if got := live.lists.Load(); got > 20 {
		t.Errorf("%d lists for %d who ask", got, many)
	}
	if gate.Waiting() != many-1 || woken.Load() != 0 {
		t.Fatalf("%d wait, %d were called", gate.Waiting(), woken.Load())
	}
	gate.Freed()
	gate.Freed()
	if woken.Load() != 2 {
		t.Errorf("%d were called for two places", woken.Load())
	}
}

// Whoever waits in front has a place held for it when somebody asks who came later.
func TestTheWorstGoFirstThenTheOldest(t *testing.T) {
	t.Parallel()
	var objects []client.Object
	for _, name := range []string{"busy", "young", "old", "failed"} {
		objects = append(objects, serving(name)...)
	}
	p := newPlane(t, objects...)
	gate := newGate(t, p, p, nil)
	if acted, err := gate.Ask(t.Context(), disturb(p, "busy")); !acted || err != nil {
		t.Fatal(err)
	}
	var called []string
	ask := func(name string) bool {
		q := disturb(p, name)
		switch name {
		case "old":
			q.Order.Since = time.Unix(1, 0)
		case "young":
			q.Order.Since = time.Unix(2, 0)
		case "failed":
			q.Order.Since, q.Order.Failures = time.Unix(3, 0), 1
		}
		q.Wake = func() { called = append(called, name) }
		acted, err := gate.Ask(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return acted
	}
	free := func(name string) {
		i := &v1alpha1.WindowsInstance{}
		if err := p.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, i); err != nil {
			t.Fatal(err)
		}
		i.Status.Disruption = nil
		if err := p.Status().Update(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"young", "old", "failed"} {
		if ask(name) {
			t.Fatalf("%s goes although the budget is spent", name)
		}
	}
	free("busy")
	if ask("young") {
		t.Error("the last in the queue took the place")
	}
	for _, name := range []string{"failed", "old", "young"} {
		if len(called) == 0 || called[len(called)-1] != name {
			t.Fatalf("called %v, and it is the turn of %s", called, name)
		}
		if !ask(name) {
			t.Fatalf("%s was called and may not go", name)
		}
		free(name)
		gate.Freed()
	}
}

func TestAWindowThatIsClosedHoldsEverybody(t *testing.T) {
	t.Parallel()
	down := serving("down")
	down[0].(*corev1.Node).Status.Conditions = nil
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2))
	config.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	p := newPlane(t, append(append(serving("up"), down...), config)...)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	gate, err := rollout.New(rollout.Options{Cached: p, Live: p, Namespace: namespace, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name string) bool {
		q := disturb(p, name)
		q.Decide = func(look rollout.Look) bool { return look.MayDisrupt(name).Allowed }
		acted, err := gate.Ask(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return acted
	}
	if ask("up") || ask("down") {
		t.Error("a node went in a closed window")
	}
	now = now.Add(10*time.Hour + time.Minute)
	if !ask("up") || !ask("down") {
		t.Error("it waits in an open window")
	}
}

func TestACacheThatLagsBehindLetsNobodyThrough(t *testing.T) {
	t.Parallel()
	live := newPlane(t, append(serving("a"), serving("b")...)...)
	cached := newPlane(t, append(serving("a"), serving("b")...)...)
	gate := newGate(t, cached, live, nil)
	if acted, err := gate.Ask(t.Context(), disturb(live, "a")); !acted || err != nil {
		t.Fatalf("the first one: %v, %v", acted, err)
	}
	if acted, err := gate.Ask(t.Context(), disturb(live, "b")); acted || err != nil {
		t.Errorf("the second one, of which the cache knows nothing: %v, %v", acted, err)
	}
}

func TestANoByTheCacheSparesTheAPIServer(t *testing.T) {
	t.Parallel()
	live := newPlane(t, append(serving("a"), serving("b")...)...)
	down := serving("a")
	down[0].(*corev1.Node).Status.Conditions = nil
	cached := newPlane(t, append(down, serving("b")...)...)
	gate := newGate(t, cached, live, nil)
	if acted, err := gate.Ask(t.Context(), disturb(live, "b")); acted || err != nil || live.lists.Load() != 0 {
		t.Errorf("%v, %v, and the API server was asked %d times", acted, err, live.lists.Load())
	}
	question := disturb(live, "b")
	question.Fresh = true // it was told that there is a place, which the cache does not show yet
	if acted, err := gate.Ask(t.Context(), question); !acted || err != nil {
		t.Errorf("%v, %v", acted, err)
	}
}

// noSets can't be read.
type noSets struct{}

func (noSets) Sets(context.Context, bool) ([]policy.Set, error) { return nil, errors.New("away") }

func TestWhatCanNotBeSeenIsNotDecided(t *testing.T) {
	t.Parallel()
	for name, gate := range map[string]func(t *testing.T) (*rollout.Gate, *plane){
		"the API server does not answer": func(t *testing.T) (*rollout.Gate, *plane) {
			t.Helper()
			live := newPlane(t, serving("a")...)
			live.broken = errors.New("away")
			return newGate(t, newPlane(t, serving("a")...), live, nil), live
		},
		"nobody knows what makes hosts anew": func(t *testing.T) (*rollout.Gate, *plane) {
			t.Helper()
			p := newPlane(t, serving("a")...)
			return newGate(t, p, p, noSets{}), p
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, p := gate(t)
			if acted, err := g.Ask(t.Context(), disturb(p, "a")); acted || err == nil {
				t.Errorf("%v, %v", acted, err)
			}
		})
	}
}

func TestADecisionThatFailedLetsTheNextOneThrough(t *testing.T) {
	t.Parallel()
	p := newPlane(t, serving("a")...)
	gate := newGate(t, p, p, nil)
	failing := disturb(p, "a")
	failing.Act = func(context.Context) error { return errors.New("could not be written") }
	if acted, err := gate.Ask(t.Context(), failing); acted || err == nil {
		t.Errorf("%v, %v", acted, err)
	}
	if acted, err := gate.Ask(t.Context(), disturb(p, "a")); !acted || err != nil {
		t.Errorf("%v, %v", acted, err)
	}
}

func TestWhoEndsDoesNotWaitForOthers(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	gate := newGate(t, p, p, nil)
	begun, done := make(chan struct{}), make(chan struct{})
	slow := disturb(p, "a")
	slow.Act = func(context.Context) error { close(begun); <-done; return nil }
	var group sync.WaitGroup
	group.Go(func() {
		if acted, err := gate.Ask(t.Context(), slow); !acted || err != nil {
			t.Errorf("the slow one: %v, %v", acted, err)
		}
	})
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	group.Go(func() {
		if acted, err := gate.Ask(ctx, disturb(p, "b")); acted || !errors.Is(err, context.Canceled) {
			t.Errorf("the one that ended: %v, %v", acted, err)
		}
		close(done)
	})
	cancel() // ended before it has its turn, or while it waits for it
	group.Wait()
}

func TestAGateNeedsAllItsParts(t *testing.T) {
	t.Parallel()
	if _, err := rollout.New(rollout.Options{}); err == nil {
		t.Error("made of nothing")
	}
}
