package rollout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
	"github.com/windows-nodes/wmco/lab/scheme"
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
	scheme := scheme.New(t)
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
		&v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
			Status: v1alpha1.WindowsInstanceStatus{NodeName: name}},
	}
}

func newGate(t *testing.T, cached, live client.Reader, writer client.Writer, sets rollout.Sets) *rollout.Gate {
	t.Helper()
	gate, err := rollout.New(rollout.Options{Cached: cached, Live: live, Writer: writer, Sets: sets,
		Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// disrupt asks whether a node may be disrupted.
func disrupt(name string) rollout.Request {
	return rollout.Request{
		Name: name, Node: name, Order: rollout.Order{Name: name},
		Decide: func(look rollout.Snapshot) bool {
			return policy.MayDisruptAnytime(name, look.Fleet, look.MaxUnavailable).Allowed
		},
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !so(); {
		select {
		case <-end:
			t.Fatal("it never came to be")
		case <-tick.C:
		}
	}
}

// takes asks, and shows in the status that the place is used.
func (p *plane) takes(ctx context.Context, gate *rollout.Gate, q rollout.Request) (bool, error) {
	granted, err := gate.Acquire(ctx, q)
	if !granted || err != nil {
		return granted, err
	}
	return true, p.uses(ctx, q.Name, true)
}

// uses writes into a status whether the instance uses a place.
func (p *plane) uses(ctx context.Context, name string, place bool) error {
	i := &v1alpha1.WindowsInstance{}
	if err := p.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, i); err != nil {
		return err
	}
	i.Status.Disruption = nil
	if place {
		i.Status.Disruption = &v1alpha1.Disruption{Purpose: v1alpha1.DisruptionUpdate, Since: metav1.Now()}
	}
	return p.Status().Update(ctx, i)
}

// returns gives a place back that is not used.
func (p *plane) returns(t *testing.T, gate *rollout.Gate, name string) {
	t.Helper()
	if err := gate.Return(t.Context(), p.instance(t, name)); err != nil {
		t.Fatal(err)
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
	gate := newGate(t, p, p, p, nil)
	var went atomic.Int32
	var group sync.WaitGroup
	for _, name := range names {
		group.Go(func() {
			acted, err := p.takes(t.Context(), gate, disrupt(name))
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
	var held atomic.Bool
	released := make(chan struct{})
	gate := newGate(t, cached, live, &writing{live, func() error { held.Store(true); <-released; return nil }}, nil)
	release := sync.OnceFunc(func() { close(released) })
	var group sync.WaitGroup
	defer group.Wait()
	defer release()
	group.Go(func() { // somebody is given a place while all the others come
		if acted, err := live.takes(t.Context(), gate, disrupt(names[many-1])); !acted || err != nil {
			t.Errorf("%v, %v", acted, err)
		}
	})
	eventually(t, held.Load)
	var woken atomic.Int32
	for _, name := range names[:many-1] {
		group.Go(func() {
			q := disrupt(name)
			q.Wake = func() { woken.Add(1) }
			if acted, err := gate.Acquire(t.Context(), q); acted || err != nil {
				t.Errorf("%v, %v", acted, err)
			}
		})
	}
	eventually(t, func() bool { return gate.Queued() == many-1 })
	release()
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
func TestThoseThatFailedGoLastAndTheOldestFirst(t *testing.T) {
	t.Parallel()
	var objects []client.Object
	for _, name := range []string{"busy", "young", "old", "failed"} {
		objects = append(objects, serving(name)...)
	}
	p := newPlane(t, objects...)
	gate := newGate(t, p, p, p, nil)
	if acted, err := p.takes(t.Context(), gate, disrupt("busy")); !acted || err != nil {
		t.Fatal(err)
	}
	var called []string
	ask := func(name string) bool {
		q := disrupt(name)
		switch name {
		case "old":
			q.Order.Since = time.Unix(1, 0)
		case "young":
			q.Order.Since = time.Unix(2, 0)
		case "failed":
			q.Order.Since, q.Order.Failures = time.Unix(3, 0), 1
		}
		q.Wake = func() { called = append(called, name) }
		acted, err := p.takes(t.Context(), gate, q)
		if err != nil {
			t.Fatal(err)
		}
		return acted
	}
	free := func(name string) {
		if err := p.uses(t.Context(), name, false); err != nil {
			t.Fatal(err)
		}
		gate.Freed()
	}
	for _, name := range []string{"young", "old", "failed"} {
		if ask(name) {
			t.Fatalf("%s goes although the budget is spent", name)
		}
	}
	free("busy")
	if ask("failed") {
		t.Error("the last in the queue took the place")
	}
	for _, name := range []string{"old", "young", "failed"} {
		if len(called) == 0 || called[len(called)-1] != name {
			t.Fatalf("called %v, and it is the turn of %s", called, name)
		}
		if !ask(name) {
			t.Fatalf("%s was called and may not go", name)
		}
		free(name)
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
	gate, err := rollout.New(rollout.Options{Cached: p, Live: p, Writer: p, Namespace: namespace,
		Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name string) bool {
		q := disrupt(name)
		q.Decide = func(look rollout.Snapshot) bool { return look.MayDisrupt(name).Allowed }
		acted, err := p.takes(t.Context(), gate, q)
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
	gate := newGate(t, cached, live, live, nil)
	if acted, err := live.takes(t.Context(), gate, disrupt("a")); !acted || err != nil {
		t.Fatalf("the first one: %v, %v", acted, err)
	}
	if acted, err := live.takes(t.Context(), gate, disrupt("b")); acted || err != nil {
		t.Errorf("the second one, of which the cache knows nothing: %v, %v", acted, err)
	}
}

func TestANoByTheCacheSparesTheAPIServer(t *testing.T) {
	t.Parallel()
	live := newPlane(t, append(serving("a"), serving("b")...)...)
	down := serving("a")
	down[0].(*corev1.Node).Status.Conditions = nil
	cached := newPlane(t, append(down, serving("b")...)...)
	gate := newGate(t, cached, live, live, nil)
	if acted, err := live.takes(t.Context(), gate, disrupt("b")); acted || err != nil || live.lists.Load() != 0 {
		t.Errorf("%v, %v, and the API server was asked %d times", acted, err, live.lists.Load())
	}
	request, called := disrupt("b"), false
	request.Wake = func() { called = true }
	if acted, err := gate.Acquire(t.Context(), request); acted || err != nil || live.lists.Load() != 0 {
		t.Errorf("%v, %v, and the API server was asked %d times", acted, err, live.lists.Load())
	}
	gate.Freed() // it is told that there is a place, which the cache does not show yet
	if acted, err := gate.Acquire(t.Context(), request); !acted || err != nil || !called {
		t.Errorf("%v, %v; it was called: %v", acted, err, called)
	}
}

// A place may become free before the cache shows it, or between a no and the note of who waits.
func TestAPlaceThatBecomesFreeWhileNobodyWaitsYetIsToldToTheNext(t *testing.T) {
	t.Parallel()
	for name, freed := range map[string]struct{ before, meanwhile int }{"before": {1, 0}, "meanwhile": {0, 1},
		"both": {1, 1}, "neither": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := slices.Concat(serving("a"), serving("b"), serving("c"), serving("d"))
			live := newPlane(t, objects...)
			objects[0].(*corev1.Node).Status.Conditions = nil
			gate := newGate(t, newPlane(t, objects...), live, live, nil)
			for range freed.before {
				gate.Freed()
			}
			var called []string
			for _, who := range []string{"b", "c", "d"} {
				request := disrupt(who)
				request.Wake = func() { called = append(called, who) }
				decide, once := request.Decide, sync.Once{}
				request.Decide = func(look rollout.Snapshot) bool {
					if who == "b" {
						once.Do(func() {
							for range freed.meanwhile {
								gate.Freed()
							}
						})
					}
					return decide(look)
				}
				if granted, err := gate.Acquire(t.Context(), request); granted || err != nil {
					t.Fatalf("%s: %v, %v", who, granted, err)
				}
			}
			if want := []string{"b"}[:max(freed.before, freed.meanwhile)]; !slices.Equal(called, want) {
				t.Errorf("%v were called, want %v", called, want)
			}
		})
	}
}

// A place that was free long ago is told to nobody.
func TestAPlaceThatWasFreeLongAgoCallsNobody(t *testing.T) {
	t.Parallel()
	objects := slices.Concat(serving("a"), serving("b"))
	live := newPlane(t, objects...)
	objects[0].(*corev1.Node).Status.Conditions = nil
	now := time.Now()
	gate, err := rollout.New(rollout.Options{Cached: newPlane(t, objects...), Live: live, Writer: live,
		Namespace: namespace, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	gate.Freed()
	now = now.Add(time.Minute)
	request := disrupt("b")
	request.Wake = func() { t.Error("it was called") }
	if granted, err := gate.Acquire(t.Context(), request); granted || err != nil {
		t.Errorf("%v, %v", granted, err)
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
			return newGate(t, newPlane(t, serving("a")...), live, live, nil), live
		},
		"nobody knows what makes hosts anew": func(t *testing.T) (*rollout.Gate, *plane) {
			t.Helper()
			p := newPlane(t, serving("a")...)
			return newGate(t, p, p, p, noSets{}), p
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, p := gate(t)
			if acted, err := p.takes(t.Context(), g, disrupt("a")); acted || err == nil {
				t.Errorf("%v, %v", acted, err)
			}
		})
	}
}

func TestADecisionThatFailedLetsTheNextOneThrough(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	failing := func() error { return errors.New("could not be written") }
	gate := newGate(t, p, p, &writing{p, failing}, nil)
	if acted, err := gate.Acquire(t.Context(), disrupt("a")); acted || err == nil {
		t.Errorf("%v, %v", acted, err)
	}
	if acted, err := gate.Acquire(t.Context(), disrupt("a")); !acted || err != nil {
		t.Errorf("%v, %v", acted, err)
	}
	p.returns(t, gate, "a") // it could not be written that the place is used
	if acted, err := p.takes(t.Context(), gate, disrupt("b")); !acted || err != nil {
		t.Errorf("%v, %v", acted, err)
	}
}

// It gave one back for the same instance before.
func TestAStaleOperatorTakesNoPlaceBackThatItsSuccessorGaveOut(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	clock := time.Now()
	stale, present := p.operator(t, &clock), p.operator(t, &clock)
	if granted, err := stale.Acquire(t.Context(), disrupt("a")); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	p.returns(t, stale, "a")
	clock = clock.Add(3 * time.Minute)
	if granted, err := present.Acquire(t.Context(), disrupt("a")); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	if granted, err := stale.Acquire(t.Context(), disrupt("b")); granted || err != nil {
		t.Errorf("two nodes go ahead: %v, %v", granted, err)
	}
}

// operator is one whose clock is scripted.
func (p *plane) operator(t *testing.T, clock *time.Time) *rollout.Gate {
	t.Helper()
	gate, err := rollout.New(rollout.Options{Cached: p, Live: p, Writer: p, Namespace: namespace,
		Now: func() time.Time { return *clock }})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// An operator that dies after a place is in the list, and before it is used.
func TestAPlaceThatNobodyUsesIsKeptForAWhile(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	now := time.Now()
	if acted, err := p.operator(t, &now).Acquire(t.Context(), disrupt("a")); !acted || err != nil {
		t.Fatalf("%v, %v", acted, err)
	}
	next := p.operator(t, &now)
	// the one before may still write that it uses it
	if acted, err := p.takes(t.Context(), next, disrupt("b")); acted || err != nil {
		t.Errorf("it goes ahead while the place may be used: %v, %v", acted, err)
	}
	now = now.Add(2*time.Minute + time.Second)
	if acted, err := p.takes(t.Context(), next, disrupt("b")); !acted || err != nil {
		t.Errorf("the place is stuck: %v, %v", acted, err)
	}
	now = now.Add(time.Hour) // it is used for long
	if acted, err := p.takes(t.Context(), p.operator(t, &now), disrupt("a")); acted || err != nil {
		t.Errorf("a place that is used is given out: %v, %v", acted, err)
	}
}

// The places of both are in the list, and no status shows them yet, as when an operator has just died.
func TestTwoWhoHaveUnusedPlacesDoNotCallEachOther(t *testing.T) {
	t.Parallel()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2))
	objects := append(append(serving("a"), serving("b")...), append(serving("c"), serving("d")...)...)
	p := newPlane(t, append(objects, config)...)
	now := time.Now()
	before := p.operator(t, &now)
	for _, name := range []string{"a", "b"} {
		if granted, err := before.Acquire(t.Context(), disrupt(name)); !granted || err != nil {
			t.Fatalf("%s: %v, %v", name, granted, err)
		}
	}
	next, calls := p.operator(t, &now), map[string]int{}
	for _, name := range []string{"a", "b", "a", "b"} {
		q := disrupt(name)
		q.Wake = func() { calls[name]++ }
		if granted, err := next.Acquire(t.Context(), q); !granted || err != nil {
			t.Errorf("%s is kept from its place: %v, %v", name, granted, err)
		}
	}
	if got := p.places(t); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the list has %v", got)
	}
	if len(calls) > 0 {
		t.Errorf("called in vain: %v", calls)
	}
}

// Its Machine has a place, and is not deleted yet.
func TestAPlaceOfAMachineIsNoneOfItsNode(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	gate := newGate(t, p, p, p, machines{"a", "b"})
	q := disrupt("Machine a")
	q.Node, q.Machine, q.Decide = "a", "a", func(rollout.Snapshot) bool { return true }
	if granted, err := gate.Acquire(t.Context(), q); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	for _, name := range []string{"a", "b"} {
		if acted, err := p.takes(t.Context(), gate, disrupt(name)); acted || err != nil {
			t.Errorf("%s goes ahead: %v, %v", name, acted, err)
		}
	}
	p.returns(t, gate, "a")
	if acted, err := p.takes(t.Context(), gate, disrupt("b")); !acted || err != nil {
		t.Errorf("%v, %v", acted, err)
	}
}

// machines are those of one set.
type machines []string

func (m machines) Sets(context.Context, bool) ([]policy.Set, error) {
	set := policy.Set{UID: "set", Replicas: len(m)}
	for _, name := range m {
		set.Hosts = append(set.Hosts, policy.SetHost{Name: name})
	}
	return []policy.Set{set}, nil
}

// Somebody deleted the list, or it is from before there was one.
func TestPlacesThatOnlyStatusesTellOfCount(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	if err := p.uses(t.Context(), "a", true); err != nil {
		t.Fatal(err)
	}
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(2))
	gate := newGate(t, p, p, p, nil)
	if acted, err := p.takes(t.Context(), gate, disrupt("b")); acted || err != nil {
		t.Errorf("%v, %v", acted, err)
	}
	if err := p.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if acted, err := p.takes(t.Context(), gate, disrupt("b")); !acted || err != nil {
		t.Errorf("%v, %v", acted, err)
	}
	if got := p.places(t); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the list has %v", got)
	}
}

// places lists who has one.
func (p *plane) places(t *testing.T) (names []string) {
	t.Helper()
	list := &corev1.ConfigMap{}
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: contract.PlacesConfigMap}, list); err != nil {
		t.Fatal(err)
	}
	var grants []rollout.Grant
	if err := json.Unmarshal([]byte(list.Data["grants"]), &grants); err != nil {
		t.Fatal(err)
	}
	for _, one := range grants {
		names = append(names, one.Name)
	}
	return names
}

// An object of etcd has at most 1.5 MiB, and a ConfigMap 1 MiB of data.
func TestTheListOfAThousandPlacesFitsIntoOneObject(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 253)
	var grants []rollout.Grant
	for range 1000 {
		grants = append(grants, rollout.Grant{Name: "Machine " + long, Node: long, Machine: long, Version: "18446744073709551615",
			Since: metav1.NowMicro()})
	}
	text, err := json.Marshal(grants)
	if err != nil || len(text) > 1<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// writing does something once, before the list of places is written.
type writing struct {
	client.Writer
	first func() error
}

func (w *writing) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	if first := w.first; first != nil {
		w.first = nil
		if err := first(); err != nil {
			return err
		}
	}
	return w.Writer.Create(ctx, o, options...)
}

// between runs something once, after the first list of Nodes was read.
type between struct {
	client.Reader
	run func()
}

func (b *between) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := b.Reader.List(ctx, list, options...)
	if _, nodes := list.(*corev1.NodeList); nodes && b.run != nil {
		run := b.run
		b.run = nil
		run()
	}
	return err
}

// An operator that lost its lease, and does not know yet, decides at the same time as its successor.
func TestTwoOperatorsGiveNoPlaceTwice(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	live := &between{Reader: p}
	stale, present := newGate(t, p, live, p, nil), newGate(t, p, p, p, nil)
	live.run = func() {
		if acted, err := p.takes(t.Context(), present, disrupt("b")); !acted || err != nil {
			t.Errorf("the present operator: %v, %v", acted, err)
		}
	}
	if acted, _ := p.takes(t.Context(), stale, disrupt("a")); acted {
		t.Error("two nodes go ahead, and the budget is 1")
	}
}

func TestWhoEndsDoesNotWaitForOthers(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	var begun atomic.Bool
	done := make(chan struct{})
	gate := newGate(t, p, p, &writing{p, func() error { begun.Store(true); <-done; return nil }}, nil)
	var group sync.WaitGroup
	group.Go(func() {
		if acted, err := gate.Acquire(t.Context(), disrupt("a")); !acted || err != nil {
			t.Errorf("the slow one: %v, %v", acted, err)
		}
	})
	eventually(t, begun.Load)
	ctx, cancel := context.WithCancel(t.Context())
	group.Go(func() {
		if acted, err := gate.Acquire(ctx, disrupt("b")); acted || !errors.Is(err, context.Canceled) {
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

// why asks about a node like disrupt, and tells why not.
func why(t *testing.T, gate *rollout.Gate, q rollout.Request) string {
	t.Helper()
	var verdict policy.Verdict
	q.Decide = func(look rollout.Snapshot) bool {
		verdict = look.MayDisrupt(q.Node)
		return verdict.Allowed
	}
	if granted, err := gate.Acquire(t.Context(), q); granted || err != nil {
		t.Fatalf("%s: %v, %v", q.Name, granted, err)
	}
	return verdict.Why
}

func TestWhoComesTooLateIsToldWhatIsTheCase(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	gateOf := func(t *testing.T, p *plane) *rollout.Gate {
		t.Helper()
		gate, err := rollout.New(rollout.Options{Cached: p, Live: p, Writer: p, Namespace: namespace, Sets: machines{"a"},
			Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		return gate
	}
	t.Run("its Machine has a place that is not used yet", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t, serving("a")...)
		gate, machine := gateOf(t, p), disrupt("a")
		machine.Name, machine.Machine = rollout.MachineName("a"), "a"
		if granted, err := gate.Acquire(t.Context(), machine); !granted || err != nil {
			t.Fatalf("%v, %v", granted, err)
		}
		if text := why(t, gate, disrupt("a")); text != "a place was given out for node a (Machine a) at "+
			"2026-01-01T12:00:00Z, which is not used yet" {
			t.Errorf("it is told %q", text)
		}
	})
	t.Run("another has a place that is not used yet", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t, append(serving("a"), serving("b")...)...)
		gate := gateOf(t, p)
		if granted, err := gate.Acquire(t.Context(), disrupt("a")); !granted || err != nil {
			t.Fatalf("%v, %v", granted, err)
		}
		if text := why(t, gate, disrupt("b")); text != "1 of 2 nodes are unavailable and maxUnavailable is 1 "+
			"(a: a place was given out for it at 2026-01-01T12:00:00Z)" {
			t.Errorf("it is told %q", text)
		}
	})
	t.Run("another waits in front", func(t *testing.T) {
		t.Parallel()
		p := newPlane(t, append(append(serving("a"), serving("b")...), serving("c")...)...)
		gate, first := gateOf(t, p), disrupt("a")
		if granted, err := p.takes(t.Context(), gate, disrupt("c")); !granted || err != nil {
			t.Fatalf("%v, %v", granted, err)
		}
		first.Wake = func() {}
		why(t, gate, first)
		if err := p.uses(t.Context(), "c", false); err != nil {
			t.Fatal(err)
		}
		if text := why(t, gate, disrupt("b")); text != "1 of 3 nodes are unavailable and maxUnavailable is 1 "+
			"(a: it is its turn)" {
			t.Errorf("it is told %q", text)
		}
	})
}
