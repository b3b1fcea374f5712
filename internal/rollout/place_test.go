package rollout_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/rollout"
)

// instance reads one.
func (p *plane) instance(t *testing.T, name string) *v1alpha1.WindowsInstance {
	t.Helper()
	i := &v1alpha1.WindowsInstance{}
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, i); err != nil {
		t.Fatal(err)
	}
	return i
}

// settings are the user's.
func settings(maxUnavailable int32) *v1alpha1.WindowsMachineConfig {
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(maxUnavailable))
	return config
}

// A write that is on its way for longer than the place is kept for it.
func TestAPlaceThatWentToAnotherCanNotBeUsedAnyMore(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	now := time.Now()
	if granted, err := p.operator(t, &now).Acquire(t.Context(), disrupt("a")); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	slow := p.instance(t, "a")
	slow.Status.Disruption = &v1alpha1.Disruption{Purpose: v1alpha1.DisruptionUpdate, Since: metav1.Now()}
	now = now.Add(2*time.Minute + time.Second)
	if acted, err := p.takes(t.Context(), p.operator(t, &now), disrupt("b")); !acted || err != nil {
		t.Fatalf("the place is stuck: %v, %v", acted, err)
	}
	if err := p.Status().Update(t.Context(), slow); !apierrors.IsConflict(err) {
		t.Errorf("two nodes go ahead: %v", err)
	}
}

// The operator ended between the list and the status.
func TestAnOperatorThatFollowsGoesOnWithAnUnusedPlace(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	now := time.Now()
	if granted, err := p.operator(t, &now).Acquire(t.Context(), disrupt("a")); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	next := p.operator(t, &now)
	if acted, err := p.takes(t.Context(), next, disrupt("b")); acted || err != nil {
		t.Errorf("two nodes may go ahead: %v, %v", acted, err)
	}
	if acted, err := p.takes(t.Context(), next, disrupt("a")); !acted || err != nil {
		t.Errorf("its own place is kept from it: %v, %v", acted, err)
	}
	if got := p.places(t); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the list has %v", got)
	}
}

// The one who gave it back is no more, and nobody else remembers.
func TestAPlaceThatWasGivenBackIsFreeForWhoeverFollows(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"a", "b"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, append(serving("a"), serving("b")...)...)
			now := time.Now()
			if acted, err := p.takes(t.Context(), p.operator(t, &now), disrupt("a")); !acted || err != nil {
				t.Fatalf("%v, %v", acted, err)
			}
			if err := p.uses(t.Context(), "a", false); err != nil {
				t.Fatal(err)
			}
			if acted, err := p.takes(t.Context(), p.operator(t, &now), disrupt(next)); !acted || err != nil {
				t.Errorf("it waits for a place that nobody has: %v, %v", acted, err)
			}
		})
	}
}

// A window closed, or its revision failed, between the list and the status.
func TestAPlaceThatMayNotBeUsedAnyMoreIsFree(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	now := time.Now()
	if granted, err := p.operator(t, &now).Acquire(t.Context(), disrupt("a")); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	slow, next := p.instance(t, "a"), p.operator(t, &now)
	halted := disrupt("a")
	halted.Decide = func(rollout.Snapshot) bool { return false }
	for range 2 { // by the cache, and by the API server
		if granted, err := next.Acquire(t.Context(), halted); granted || err != nil {
			t.Fatalf("%v, %v", granted, err)
		}
		calls := 0
		halted.Decide = func(rollout.Snapshot) bool { calls++; return calls == 1 }
	}
	if acted, err := p.takes(t.Context(), next, disrupt("b")); !acted || err != nil {
		t.Errorf("the place is stuck: %v, %v", acted, err)
	}
	if err := p.Status().Update(t.Context(), slow); !apierrors.IsConflict(err) {
		t.Errorf("two nodes go ahead: %v", err)
	}
}

// unsure writes the list, and does not hear that it did.
type unsure struct {
	client.Writer
	times int
}

func (w *unsure) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	err := w.Writer.Create(ctx, o, options...)
	if w.times++; w.times == 1 {
		return context.DeadlineExceeded
	}
	return err
}

func TestAListWhoseWriteGotNoAnswerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	gate := newGate(t, p, p, &unsure{Writer: p}, nil)
	if granted, err := gate.Acquire(t.Context(), disrupt("a")); granted || err == nil {
		t.Fatalf("%v, %v", granted, err)
	}
	if acted, err := p.takes(t.Context(), gate, disrupt("b")); acted || err != nil {
		t.Errorf("the place of another is given out: %v, %v", acted, err)
	}
	if acted, err := p.takes(t.Context(), gate, disrupt("a")); !acted || err != nil {
		t.Errorf("its own place is kept from it: %v, %v", acted, err)
	}
}

// The clock of the one that gave a place back is ahead of its successor's.
func TestClocksOfTwoOperatorsAreNotCompared(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	behind := time.Now()
	ahead := behind.Add(time.Minute)
	stale, present := p.operator(t, &ahead), p.operator(t, &behind)
	if acted, err := p.takes(t.Context(), stale, disrupt("a")); !acted || err != nil {
		t.Fatalf("%v, %v", acted, err)
	}
	if err := p.uses(t.Context(), "a", false); err != nil {
		t.Fatal(err)
	}
	stale.Freed()
	if granted, err := present.Acquire(t.Context(), disrupt("a")); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	if granted, err := stale.Acquire(t.Context(), disrupt("b")); granted || err != nil {
		t.Errorf("two nodes may go ahead: %v, %v", granted, err)
	}
}

func TestABudgetThatOnlyTheCacheShowsIsNoneAnyMore(t *testing.T) {
	t.Parallel()
	live := newPlane(t, append(append(serving("a"), serving("b")...), settings(0))...)
	cached := newPlane(t, append(append(serving("a"), serving("b")...), settings(1))...)
	gate := newGate(t, cached, live, live, nil)
	if granted, err := gate.Acquire(t.Context(), disrupt("a")); granted || err != nil {
		t.Errorf("a node goes ahead, and the budget is 0: %v, %v", granted, err)
	}
}

// One that is used is in its status, too; what a later release writes must not hide the others.
func TestAnEntryThatCanNotBeReadHidesNoOther(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	gate := newGate(t, p, p, p, nil)
	if granted, err := gate.Acquire(t.Context(), disrupt("a")); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	list := &corev1.ConfigMap{}
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: contract.PlacesConfigMap}, list); err != nil {
		t.Fatal(err)
	}
	var grants []json.RawMessage
	if err := json.Unmarshal([]byte(list.Data["grants"]), &grants); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(append([]json.RawMessage{[]byte(`{"name":["?"]}`)}, grants...))
	if err != nil {
		t.Fatal(err)
	}
	list.Data["grants"] = string(text)
	if err = p.Update(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if acted, err := p.takes(t.Context(), gate, disrupt("b")); acted || err != nil {
		t.Errorf("two nodes may go ahead: %v, %v", acted, err)
	}
}

// denying is an API server that takes no new version of the list.
type denying struct {
	client.Writer
	err error
}

func (w denying) Update(context.Context, client.Object, ...client.UpdateOption) error { return w.err }

func TestAListThatCanNotBeWrittenHasAReason(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"immutable": apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(),
			contract.PlacesConfigMap, nil),
		"too large": apierrors.NewRequestEntityTooLargeError("limit is 3145728"),
		"forbidden": apierrors.NewForbidden(corev1.Resource("configmaps"), contract.PlacesConfigMap, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlane(t, append(serving("a"), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.PlacesConfigMap}})...)
			granted, err := newGate(t, p, p, denying{p, err}, nil).Acquire(t.Context(), disrupt("a"))
			problem, ok := contract.AsProblem(err)
			if granted || !ok || problem.Reason != "PlacesUnwritable" {
				t.Errorf("%v, %v", granted, err)
			}
		})
	}
}

// overtaken has something happen right before an instance is marked.
type overtaken struct {
	client.Writer
	first func()
}

func (l *overtaken) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	if l.first != nil {
		l.first()
		l.first = nil
	}
	return l.Writer.Patch(ctx, o, patch, options...)
}

// The write that uses a place arrives after the fleet was read, and before the place is revoked.
func TestAPlaceThatIsUsedWhileItIsRevokedIsTaken(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(serving("a"), serving("b")...)...)
	now := time.Now()
	if granted, err := p.operator(t, &now).Acquire(t.Context(), disrupt("a")); !granted || err != nil {
		t.Fatalf("%v, %v", granted, err)
	}
	slow := p.instance(t, "a")
	slow.Status.Disruption = &v1alpha1.Disruption{Purpose: v1alpha1.DisruptionUpdate, Since: metav1.Now()}
	writer := &overtaken{p, func() {
		if err := p.Status().Update(t.Context(), slow); err != nil {
			t.Error(err)
		}
	}}
	gate, err := rollout.New(rollout.Options{Cached: p, Live: p, Writer: writer, Namespace: namespace,
		Now: func() time.Time { return now.Add(2*time.Minute + time.Second) }})
	if err != nil {
		t.Fatal(err)
	}
	if acted, err := p.takes(t.Context(), gate, disrupt("b")); acted || err != nil {
		t.Errorf("two nodes go ahead: %v, %v", acted, err)
	}
}
