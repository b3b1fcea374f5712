package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/scheme"
)

const namespace = "ns"

// plane is an API server that counts lists of objects, and writes of the list of slots. If away is set, lists fail. If
// refuses is set, writes fail.
type plane struct {
	client.WithWatch
	lists, writes atomic.Int32
	refuses, away error
}

func newPlane(t *testing.T, objects ...client.Object) *plane {
	t.Helper()
	p := &plane{}
	write := func() error { p.writes.Add(1); return p.refuses }
	p.WithWatch = fake.NewClientBuilder().WithScheme(scheme.New(t)).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.WindowsInstance{}, &corev1.Node{}).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if p.lists.Add(1); p.away != nil {
				return p.away
			}
			return c.List(ctx, list, o...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := write(); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if _, is := o.(*corev1.ConfigMap); is {
				if err := write(); err != nil {
					return err
				}
			}
			return c.Update(ctx, o, options...)
		},
	}).Build()
	return p
}

// asking returns a node in service and its instance, which requests a slot.
func asking(name string) []client.Object {
	return []client.Object{
		&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name),
				Labels: map[string]string{contract.OSIDLabel: contract.OSIDWindows}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		},
		&v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
			Status: v1alpha1.WindowsInstanceStatus{NodeName: name, Slot: &v1alpha1.Slot{}}},
	}
}

func (p *plane) instance(t *testing.T, name string) *v1alpha1.WindowsInstance {
	t.Helper()
	i := &v1alpha1.WindowsInstance{}
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, i); err != nil {
		t.Fatal(err)
	}
	return i
}

// change changes the status of an instance.
func (p *plane) change(t *testing.T, name string, edit func(*v1alpha1.WindowsInstanceStatus)) {
	t.Helper()
	i := p.instance(t, name)
	edit(&i.Status)
	if err := p.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

// uses sets whether an instance uses its slot.
func (p *plane) uses(t *testing.T, name string, is bool) {
	t.Helper()
	p.change(t, name, func(s *v1alpha1.WindowsInstanceStatus) {
		if s.Slot.Since = new(metav1.Now()); !is {
			s.Slot = nil
		}
	})
}

func (p *plane) slots(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	list := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: namespace, Name: contract.SlotsConfigMap}
	if err := p.Get(t.Context(), key, list); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return list
}

func newRollout(t *testing.T, p *plane) *rollout.Rollout {
	t.Helper()
	r, err := rollout.New(rollout.Options{Cached: p, Live: p, Writer: p, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func decide(t *testing.T, r *rollout.Rollout) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// has reports whether an instance has its slot.
func has(t *testing.T, r *rollout.Rollout, i *v1alpha1.WindowsInstance) bool {
	t.Helper()
	is, err := r.HasSlot(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// answered returns the names of the instances that were sent to the channel of Answers.
func answered(r *rollout.Rollout) (names []string) {
	for len(r.Answers()) > 0 {
		names = append(names, (<-r.Answers()).Object.GetName())
	}
	return names
}

func TestOneAfterTheOtherHasAPlace(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(asking("a"), asking("b")...)...)
	r := newRollout(t, p)
	if result := decide(t, r); result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("while a node waits, the next decision is in %s", result.RequeueAfter)
	}
	if names := answered(r); fmt.Sprint(names) != "[a b]" {
		t.Errorf("%v were triggered", names)
	}
	if has(t, r, p.instance(t, "b")) || !has(t, r, p.instance(t, "a")) {
		t.Fatal("the slot does not belong to the first node")
	}
	p.uses(t, "a", true)
	answered(r)
	decide(t, r)
	if verdict, known := r.Verdict(p.instance(t, "b")); !known || verdict.Allowed || len(answered(r)) != 0 ||
		!strings.Contains(verdict.Shown(), "maxUnavailable is 1") {
		t.Errorf("%+v", verdict)
	}
	p.uses(t, "a", false)
	decide(t, r)
	if names := answered(r); fmt.Sprint(names) != "[b]" || !has(t, r, p.instance(t, "b")) {
		t.Errorf("%v were triggered", names)
	}
}

// While hundreds of nodes wait, the operator must not list all objects from the API server over and over.
func TestADecisionThatChangesNothingSparesTheAPIServer(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(asking("a"), asking("b")...)...)
	live := newPlane(t, append(asking("a"), asking("b")...)...)
	r, err := rollout.New(rollout.Options{Cached: p, Live: live, Writer: live, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	decide(t, r)
	lists, writes := live.lists.Load(), live.writes.Load()
	for range 10 {
		decide(t, r)
	}
	if lists == 0 || live.lists.Load() != lists || writes != 1 || live.writes.Load() != writes {
		t.Errorf("%d lists and %d writes, then %d and %d", lists, writes, live.lists.Load(), live.writes.Load())
	}
}

// The list of slots and the cache may agree although both are outdated. So the operator must read the current state
// from the API server before a slot is used.
func TestAPlaceIsUsedOnlyAsTheFleetIsNow(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(asking("a"), asking("b")...)...)
	live := newPlane(t, append(asking("a"), asking("b")...)...)
	r, err := rollout.New(rollout.Options{Cached: p, Live: live, Writer: live, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	decide(t, r)
	if !has(t, r, live.instance(t, "a")) {
		t.Fatal("the instance has no slot")
	}
	node := &corev1.Node{}
	if err := live.Get(t.Context(), client.ObjectKey{Name: "b"}, node); err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions[0].Status = corev1.ConditionFalse
	if err := live.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if has(t, r, live.instance(t, "a")) {
		t.Error("the instance keeps its slot although another node is down")
	}
}

func TestAnOperatorThatFollowsGoesOnWithTheListAndStatuses(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(asking("a"), asking("b")...)...)
	decide(t, newRollout(t, p))
	r := newRollout(t, p)
	decide(t, r)
	if !has(t, r, p.instance(t, "a")) || has(t, r, p.instance(t, "b")) {
		t.Error("an unused slot was assigned to another node")
	}
	p.uses(t, "a", true)
	if err := p.Delete(t.Context(), p.slots(t)); err != nil {
		t.Fatal(err)
	}
	r = newRollout(t, p)
	if has(t, r, p.instance(t, "b")) || !has(t, r, p.instance(t, "a")) || !strings.Contains(p.slots(t).Data["places"], `"a"`) {
		t.Error("a slot in the status is lost together with the list")
	}
}

// Between getting a slot and using it, an instance may request a different revision. The rollout of that revision may
// be halted.
func TestAPlaceOfAnEarlierRequestIsNoneForTheNext(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(asking("a"), asking("b")...)...)
	r := newRollout(t, p)
	decide(t, r)
	p.change(t, "b", func(s *v1alpha1.WindowsInstanceStatus) {
		s.FailedRevision = "bad"
	})
	p.change(t, "a", func(s *v1alpha1.WindowsInstanceStatus) {
		s.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "bad"}
	})
	decide(t, r)
	if verdict, _ := r.Verdict(p.instance(t, "a")); verdict.Reason != contract.ReasonRolloutHalted ||
		has(t, r, p.instance(t, "a")) {
		t.Errorf("%+v", verdict)
	}
	if !has(t, r, p.instance(t, "b")) {
		t.Error("no instance has the slot")
	}
}

// Two operators try to write the list at the same time.
func TestTwoOperatorsGiveNoPlaceTwice(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(asking("a"), asking("b")...)...)
	first, second := newRollout(t, p), newRollout(t, p)
	decide(t, first)
	decide(t, second)
	p.change(t, "a", func(s *v1alpha1.WindowsInstanceStatus) { s.Slot = nil })
	decide(t, second) // b gets the slot
	if !has(t, second, p.instance(t, "b")) {
		t.Fatal("the slot is not free")
	}
	p.change(t, "a", func(s *v1alpha1.WindowsInstanceStatus) {
		s.Slot = &v1alpha1.Slot{}
	})
	if is, err := first.HasSlot(t.Context(), p.instance(t, "a")); is || err != nil && !apierrors.IsConflict(err) {
		t.Errorf("both instances have a slot: %t, %v", is, err)
	}
}

func TestAnEntryThatCanNotBeReadHidesNoOther(t *testing.T) {
	t.Parallel()
	p := newPlane(t, append(asking("a"), asking("b")...)...)
	r := newRollout(t, p)
	decide(t, r)
	p.uses(t, "a", true)
	for _, text := range []string{`[{"name": 7}, %s]`, `{`, ``} {
		list := p.slots(t)
		list.Data["places"] = strings.ReplaceAll(text, "%s", strings.Trim(list.Data["places"], "[]"))
		if err := p.Update(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		r = newRollout(t, p)
		decide(t, r)
		if has(t, r, p.instance(t, "b")) || !has(t, r, p.instance(t, "a")) {
			t.Errorf("with %q in the list, another node gets the slot", text)
		}
	}
}

func TestAListThatCanNotBeWrittenHasAReason(t *testing.T) {
	t.Parallel()
	p := newPlane(t, asking("a")...)
	p.refuses = apierrors.NewForbidden(corev1.Resource("configmaps"), contract.SlotsConfigMap, nil)
	r := newRollout(t, p)
	if result := decide(t, r); result.RequeueAfter <= 0 {
		t.Error("the write is not retried")
	}
	if verdict, _ := r.Verdict(p.instance(t, "a")); verdict.Allowed || verdict.Reason != contract.ReasonSlotsUnwritable ||
		has(t, r, p.instance(t, "a")) {
		t.Errorf("%+v", verdict)
	}
	p.refuses = nil
	decide(t, r)
	if !has(t, r, p.instance(t, "a")) {
		t.Error("the problem is still reported")
	}
}

func TestWhatKeepsTheFleetFromBeingReadIsTold(t *testing.T) {
	t.Parallel()
	p := newPlane(t, asking("a")...)
	p.away = apierrors.NewServiceUnavailable("etcd is away")
	r := newRollout(t, p)
	if result := decide(t, r); result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("the read is retried in %s", result.RequeueAfter)
	}
	if verdict, known := r.Verdict(p.instance(t, "a")); !known || verdict.Allowed ||
		verdict.Reason != contract.ReasonAPICallFailed || !strings.Contains(verdict.Why, "etcd is away") {
		t.Errorf("%+v", verdict)
	}
	p.away = nil
	decide(t, r)
	if names := answered(r); fmt.Sprint(names) != "[a]" || !has(t, r, p.instance(t, "a")) {
		t.Errorf("%v were triggered", names)
	}
}

// A ConfigMap can't be larger than 1 MiB.
func TestTheListOfAThousandPlacesFitsIntoOneObject(t *testing.T) {
	t.Parallel()
	var all []policy.Slot
	for n := range 1000 {
		name := fmt.Sprintf("%0253d", n)
		all = append(all, policy.Slot{Name: policy.MachineName(name), Node: name, Machine: name, Since: metav1.Now(),
			IsUsed: true})
	}
	if text, err := json.Marshal(all); err != nil || len(text) > 1<<20-1<<12 {
		t.Errorf("the list has %d bytes, %v", len(text), err)
	}
}

func TestARolloutNeedsAllItsParts(t *testing.T) {
	t.Parallel()
	p := newPlane(t)
	for name, options := range map[string]rollout.Options{
		"no cache":     {Live: p, Writer: p, Namespace: namespace},
		"nothing live": {Cached: p, Writer: p, Namespace: namespace},
		"no writer":    {Cached: p, Live: p, Namespace: namespace},
		"no namespace": {Cached: p, Live: p, Writer: p},
	} {
		if _, err := rollout.New(options); err == nil {
			t.Errorf("%s: New accepted a missing part", name)
		}
	}
}
