package rollout_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	scheme := runtime.NewScheme()
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
	impatient := disturb(p, "b")
	decide := impatient.Decide
	impatient.Decide = func(look rollout.Look) bool { defer cancel(); return decide(look) } // ended while it waits for its turn
	if acted, err := gate.Ask(ctx, impatient); acted || !errors.Is(err, context.Canceled) {
		t.Errorf("the one that ended: %v, %v", acted, err)
	}
	close(done)
	group.Wait()
}

func TestAGateNeedsAllItsParts(t *testing.T) {
	t.Parallel()
	if _, err := rollout.New(rollout.Options{}); err == nil {
		t.Error("made of nothing")
	}
}
