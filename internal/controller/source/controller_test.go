package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/lab/scheme"
)

const namespace = "ns"

// rig is a Reconciler that records events. Its API server can fail for each verb.
type rig struct {
	*Reconciler
	api    client.WithWatch
	broken map[string]error
	heard  []string
	clock  time.Time
}

func (r *rig) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	where := ""
	if about, ok := regarding.(*corev1.ObjectReference); ok {
		where = about.FieldPath
	}
	r.heard = append(r.heard, where+" "+reason+" "+fmt.Sprintf(note, args...))
}

// createUnheld creates an object. An instance must be created with the finalizer, because adding it later costs an
// additional request. No controller removes finalizers in these tests, so createUnheld removes it.
func createUnheld(ctx context.Context, t *testing.T, c client.Client, o client.Object,
	options ...client.CreateOption) error {
	t.Helper()
	if i, is := o.(*v1alpha1.WindowsInstance); is {
		if !slices.Equal(i.Finalizers, []string{contract.InstanceFinalizer}) {
			t.Errorf("instance %s is created with the finalizers %v", i.Name, i.Finalizers)
		}
		i.Finalizers = nil
	}
	return c.Create(ctx, o, options...)
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := scheme.New(t)
	r := &rig{broken: map[string]error{}, clock: time.Unix(1_800_000_000, 0)}
	fault := func(verb string, o client.Object) error {
		return errors.Join(r.broken[verb], r.broken[verb+" "+o.GetName()])
	}
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			return errors.Join(r.broken["get"], c.Get(ctx, key, o, options...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			return errors.Join(r.broken["list"], c.List(ctx, list, options...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := fault("create", o); err != nil {
				return err
			}
			return createUnheld(ctx, t, c, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if err := fault("patch", o); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := fault("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, options...)
		},
	}).Build()
	r.Reconciler = &Reconciler{client: r.api, live: r.api, events: r, namespace: namespace,
		reported: problem.NewState(), problems: problem.NewState(), now: func() time.Time { return r.clock }}
	return r
}

func list(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.InstancesConfigMap,
		UID: "list"}, Data: data}
}

// set writes the list of hosts.
func (r *rig) set(t *testing.T, data map[string]string) {
	t.Helper()
	wanted := list(data)
	if err := r.api.Update(t.Context(), wanted); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) reconcile(t *testing.T) {
	t.Helper()
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
}

// have returns all instances, each as "address=user:port".
func (r *rig) have(t *testing.T) []string {
	t.Helper()
	instances := &v1alpha1.WindowsInstanceList{}
	if err := r.api.List(t.Context(), instances); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, i := range instances.Items {
		names = append(names, fmt.Sprintf("%s=%s:%d", i.Spec.Address, i.Spec.Username, i.Spec.Port))
	}
	slices.Sort(names)
	return names
}

func (r *rig) want(t *testing.T, names ...string) {
	t.Helper()
	if got := r.have(t); !slices.Equal(got, names) {
		t.Errorf("instances %v, want %v", got, names)
	}
}

func TestInstancesFollowTheList(t *testing.T) {
	t.Parallel()
	r := newRig(t, list(map[string]string{"10.0.0.1": "username=a", "Host.example": "username=b\n"}))
	r.reconcile(t)
	r.want(t, "10.0.0.1=a:22", "Host.example=b:22")
	made := &v1alpha1.WindowsInstance{}
	if err := r.api.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "host.example"},
		made); err != nil {
		t.Fatal(err)
	}
	if s := made.Spec.Source; s == nil || s.Kind != v1alpha1.SourceConfigMap || s.Name != "Host.example" {
		t.Errorf("source %+v", s)
	}
	r.set(t, map[string]string{"10.0.0.1": "username=c,port=2222", "Host.example": "username=b"})
	r.reconcile(t)
	r.want(t, "10.0.0.1=c:2222", "Host.example=b:22")
	r.set(t, map[string]string{"10.0.0.1": "username=c,port=2222"})
	r.reconcile(t)
	r.want(t, "10.0.0.1=c:2222")
	if len(r.heard) != 0 {
		t.Errorf("events %v", r.heard)
	}
	if err := r.api.Delete(t.Context(), list(nil)); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	r.clock = r.clock.Add(absenceGrace)
	r.reconcile(t)
	r.want(t)
	r.reconcile(t)
}

// kubectl replace --force deletes the ConfigMap and creates it again. In between, the ConfigMap doesn't exist. No host
// must be removed because of this.
func TestAListThatIsReplacedByForceRemovesNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, list(map[string]string{"10.0.0.1": "username=a", "10.0.0.2": "username=a"}))
	r.reconcile(t)
	if err := r.api.Delete(t.Context(), list(nil)); err != nil {
		t.Fatal(err)
	}
	again, err := r.Reconcile(t.Context(), ctrl.Request{})
	if err != nil || again.RequeueAfter != absenceGrace {
		t.Errorf("reconciled again after %s, %v", again.RequeueAfter, err)
	}
	r.want(t, "10.0.0.1=a:22", "10.0.0.2=a:22")
	if len(r.heard) != 1 || !strings.Contains(r.heard[0], "InstanceTeardown") || !strings.Contains(r.heard[0], "W109") {
		t.Errorf("events %q", r.heard)
	}
	r.clock = r.clock.Add(absenceGrace / 2)
	if again, err = r.Reconcile(t.Context(), ctrl.Request{}); err != nil || again.RequeueAfter != absenceGrace/2 {
		t.Errorf("reconciled again after %s, %v", again.RequeueAfter, err)
	}
	if err = r.api.Create(t.Context(), list(map[string]string{"10.0.0.1": "username=a",
		"10.0.0.2": "username=b"})); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	r.want(t, "10.0.0.1=a:22", "10.0.0.2=b:22")
	// The next time the list is absent, the full grace period must apply again.
	if err = r.api.Delete(t.Context(), list(nil)); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(absenceGrace)
	r.reconcile(t)
	r.want(t, "10.0.0.1=a:22", "10.0.0.2=b:22")
}

func TestAnEmptiedListIsBelievedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, list(map[string]string{"10.0.0.1": "username=a"}))
	r.reconcile(t)
	r.set(t, nil)
	r.reconcile(t)
	r.want(t)
}

func TestNobodyJoinsFromAListThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	ending := list(map[string]string{"10.0.0.1": "username=a"})
	now := metav1.Now()
	ending.DeletionTimestamp, ending.Finalizers = &now, []string{"example.com/mine"}
	r := newRig(t, ending)
	r.reconcile(t)
	r.want(t)
}

// A finalizer, for example for foreground deletion, may keep the deleted list for a long time.
func TestAListThatIsBeingDeletedRemovesNobodyUntilItIsGone(t *testing.T) {
	t.Parallel()
	held := list(map[string]string{"10.0.0.1": "username=a", "10.0.0.2": "username=a"})
	held.Finalizers = []string{"example.com/mine"}
	r := newRig(t, held)
	r.reconcile(t)
	if err := r.api.Delete(t.Context(), list(nil)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.reconcile(t)
		r.clock = r.clock.Add(2 * absenceGrace)
	}
	r.want(t, "10.0.0.1=a:22", "10.0.0.2=a:22")
	if len(r.heard) > 0 {
		t.Errorf("the list is reported as missing: %q", r.heard)
	}
	// The content of the list must apply until the deletion is complete.
	at := client.ObjectKeyFromObject(held)
	if err := r.api.Get(t.Context(), at, held); err != nil {
		t.Fatal(err)
	}
	held.Data = map[string]string{"10.0.0.1": "username=b"}
	if err := r.api.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	r.want(t, "10.0.0.1=b:22")
	held.Finalizers = nil
	if err := r.api.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	r.want(t, "10.0.0.1=b:22")
	r.clock = r.clock.Add(absenceGrace)
	r.reconcile(t)
	r.want(t)
}

// past is a cache in which the list is old and the instances are new.
type past struct {
	client.Client
	list *corev1.ConfigMap
}

func (p past) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	list, is := o.(*corev1.ConfigMap)
	switch {
	case !is:
		return p.Client.Get(ctx, key, o, options...)
	case p.list == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	p.list.DeepCopyInto(list)
	return nil
}

// An operator that was suspended has an old list in its cache. It must not remove hosts that were added while another
// operator was running.
func TestAListThatIsNotTheNewestRemovesNobody(t *testing.T) {
	t.Parallel()
	for name, isThere := range map[string]bool{"it has fewer entries": true, "there is none": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, list(map[string]string{"10.0.0.1": "username=a"}))
			old := &corev1.ConfigMap{}
			if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(list(nil)), old); err != nil {
				t.Fatal(err)
			}
			r.set(t, map[string]string{"10.0.0.1": "username=a", "10.0.0.2": "username=a"})
			r.reconcile(t)
			if !isThere {
				old = nil
				before := r.clock.Add(-absenceGrace)
				r.absentSince.Store(&before)
			}
			r.client = past{r.api, old}
			result, err := r.Reconcile(t.Context(), ctrl.Request{})
			if err != nil || result.RequeueAfter == 0 {
				t.Errorf("no further reconcile: %+v, %v", result, err)
			}
			r.want(t, "10.0.0.1=a:22", "10.0.0.2=a:22")
			r.broken["get"] = apierrors.NewServiceUnavailable("away")
			if _, err = r.Reconcile(t.Context(), ctrl.Request{}); err == nil {
				t.Error("the API server is down, but no error was returned")
			}
			r.broken = map[string]error{}
			r.want(t, "10.0.0.1=a:22", "10.0.0.2=a:22")
		})
	}
}

func TestA81_AnEntryThatIsBackCorrectsItsOldInstanceAndWaitsForIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, list(map[string]string{"10.0.0.1": "username=a"}))
	r.reconcile(t)
	i := &v1alpha1.WindowsInstance{}
	at := types.NamespacedName{Namespace: namespace, Name: "10.0.0.1"}
	if err := r.api.Get(t.Context(), at, i); err != nil {
		t.Fatal(err)
	}
	i.Finalizers = []string{contract.InstanceFinalizer}
	if err := r.api.Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	r.set(t, nil)
	r.reconcile(t)
	r.set(t, map[string]string{"10.0.0.1": "username=b"})
	r.reconcile(t)
	r.want(t, "10.0.0.1=b:22") // to remove the old instance, the operator must still reach its host
	if err := r.api.Get(t.Context(), at, i); err != nil {
		t.Fatal(err)
	}
	i.Finalizers = nil
	if err := r.api.Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	r.want(t, "10.0.0.1=b:22")
}

// If a file is not UTF-8, kubectl stores it in binaryData. If a user writes an entry in a different encoding than
// before, the entry's host must not be removed.
func TestA80_AnEntryInUTF16RemovesNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, list(map[string]string{"10.0.0.1": "username=a", "10.0.0.2": "username=a"}))
	r.reconcile(t)
	changed := list(map[string]string{"10.0.0.1": "username=a"})
	changed.BinaryData = map[string][]byte{"10.0.0.2": []byte("\xff\xfeu\x00s\x00e\x00r\x00")}
	if err := r.api.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	r.want(t, "10.0.0.1=a:22", "10.0.0.2=a:22")
	if len(r.heard) != 1 || !strings.HasPrefix(r.heard[0], "data{10.0.0.2} InstanceSetupFailure ") ||
		!strings.Contains(r.heard[0], "W112") || !strings.Contains(r.heard[0], "Set-Content -Encoding utf8") {
		t.Errorf("events %q", r.heard)
	}
}

func TestARejectionIsSaidOnceForEachEntry(t *testing.T) {
	t.Parallel()
	r := newRig(t, list(map[string]string{"10.0.0.1": "a", "10.0.0.2": "b", "10.0.0.3": "username=c"}))
	for range 3 {
		r.reconcile(t)
	}
	slices.Sort(r.heard)
	if len(r.heard) != 2 || !strings.HasPrefix(r.heard[0], "data{10.0.0.1} InstanceSetupFailure ") ||
		!strings.HasPrefix(r.heard[1], "data{10.0.0.2} ") ||
		!strings.Contains(r.heard[0], "W101") {
		t.Fatalf("events %q", r.heard)
	}
	r.want(t, "10.0.0.3=c:22")
	// Now the first entry has a different problem, and the second entry is deleted.
	r.set(t, map[string]string{"10.0.0.1": "username=", "10.0.0.3": "username=c"})
	r.reconcile(t)
	r.reconcile(t)
	if len(r.heard) != 3 {
		t.Errorf("the other problem was not reported exactly once: %q", r.heard)
	}
	// Now the second entry has the same problem as before.
	r.set(t, map[string]string{"10.0.0.1": "username=", "10.0.0.2": "b", "10.0.0.3": "username=c"})
	r.reconcile(t)
	if len(r.heard) != 4 {
		t.Errorf("a problem that came back was not reported: %q", r.heard)
	}
	r.reported = problem.NewState() // a new operator process
	r.reconcile(t)
	if len(r.heard) != 6 {
		t.Errorf("after a restart, the problem was reported %d times", len(r.heard)-4)
	}
}

func TestOneInstanceThatCanNotBeWrittenStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, list(map[string]string{"10.0.0.1": "username=a", "10.0.0.2": "username=a",
		"10.0.0.3": "username=a"}))
	r.reconcile(t)
	down := apierrors.NewServiceUnavailable("away")
	r.broken["create 10.0.0.4"], r.broken["patch 10.0.0.1"], r.broken["delete 10.0.0.2"] = down, down, down
	r.set(t, map[string]string{"10.0.0.1": "username=b", "10.0.0.4": "username=a", "10.0.0.5": "username=a"})
	_, err := r.Reconcile(t.Context(), ctrl.Request{})
	for _, name := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.4"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the failure of %s was not reported: %v", name, err)
		}
	}
	r.want(t, "10.0.0.1=a:22", "10.0.0.2=a:22", "10.0.0.5=a:22")
	clear(r.broken)
	r.reconcile(t)
	r.want(t, "10.0.0.1=b:22", "10.0.0.4=a:22", "10.0.0.5=a:22")
}

// expectTroubles checks the current problems, each as "reason detail".
func (r *rig) expectTroubles(t *testing.T, want ...string) {
	t.Helper()
	got := r.problems.Problems()
	for i, p := range got {
		if i >= len(want) || !strings.HasPrefix(string(p.Reason)+" "+p.Detail, want[i]) {
			t.Errorf("%s %s is wrong, want %q", p.Reason, p.Detail, want)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %q", len(got), want)
	}
}

// Events are deleted after a while, so the problem must be reported elsewhere as long as it lasts.
func TestAnEntryWhoseAddressAnotherHasIsAProblemWhileItLasts(t *testing.T) {
	t.Parallel()
	own := projected("mine", func(i *v1alpha1.WindowsInstance) { i.Spec.Address, i.Spec.Source = "10.0.0.1", nil })
	own.Namespace = namespace
	r := newRig(t, list(map[string]string{"10.0.0.1": "username=a", "10.0.0.2": "junk"}), &own)
	r.reconcile(t)
	r.expectTroubles(t, "AddressDuplicate WindowsInstance mine has the address 10.0.0.1 already")
	r.reconcile(t)
	if len(r.heard) != 2 {
		t.Errorf("events %q", r.heard)
	}
	if err := r.api.Delete(t.Context(), &own); err != nil {
		t.Fatal(err)
	}
	r.reconcile(t)
	r.expectTroubles(t)
	r.want(t, "10.0.0.1=a:22")
}

func TestAnEntryWhoseInstanceIsRefusedIsAProblemAndTriedAgain(t *testing.T) {
	t.Parallel()
	kind := schema.GroupResource{Resource: "windowsinstances"}
	for name, refusal := range map[string]error{
		"a quota":     apierrors.NewForbidden(kind, "10.0.0.1", errors.New("exceeded quota")),
		"the API":     apierrors.NewInvalid(schema.GroupKind{Kind: "WindowsInstance"}, "10.0.0.1", nil),
		"and trouble": apierrors.NewForbidden(kind, "10.0.0.1", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, list(map[string]string{"10.0.0.1": "username=a", "10.0.0.2": "username=a"}))
			r.broken["create 10.0.0.1"] = refusal
			made := []string{"10.0.0.2=a:22"}
			if name == "and trouble" {
				r.broken["create 10.0.0.2"], made = apierrors.NewServiceUnavailable("away"), nil
			}
			result, err := r.Reconcile(t.Context(), ctrl.Request{})
			if err != nil || result.RequeueAfter != refusedRetry {
				t.Errorf("reconciled again after %s, %v", result.RequeueAfter, err)
			}
			r.want(t, made...)
			r.expectTroubles(t, "InstanceRefused WindowsInstance 10.0.0.1 can't be made: ")
			if len(r.heard) != 1 || !strings.Contains(r.heard[0], "W110") {
				t.Errorf("events %q", r.heard)
			}
			clear(r.broken)
			r.reconcile(t)
			r.expectTroubles(t)
			r.want(t, "10.0.0.1=a:22", "10.0.0.2=a:22")
		})
	}
}

func TestAnAPIServerThatIsAwayRemovesNobody(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"get", "list"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, list(map[string]string{"10.0.0.1": "username=a"}))
			r.reconcile(t)
			r.broken[verb] = apierrors.NewServiceUnavailable("away")
			if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err == nil {
				t.Error("no error was returned")
			}
			clear(r.broken)
			r.want(t, "10.0.0.1=a:22")
		})
	}
}

func TestACacheThatLagsBehindIsNoError(t *testing.T) {
	t.Parallel()
	r := newRig(t, list(map[string]string{"10.0.0.1": "username=a"}))
	r.broken["create"] = apierrors.NewAlreadyExists(schema.GroupResource{Resource: "windowsinstances"}, "10.0.0.1")
	r.reconcile(t)
}

// If a user creates an instance by hand and sets the list as its source, the instance belongs to the list. If the list
// contains no such entry, the instance is deleted.
func TestAnInstanceWithASourceMadeUpIsTheLists(t *testing.T) {
	t.Parallel()
	made, own := projected("10.0.0.9", nil),
		projected("10.0.0.8", func(i *v1alpha1.WindowsInstance) { i.Spec.Source = nil })
	machine := projected("10.0.0.7", func(i *v1alpha1.WindowsInstance) { i.Spec.Source.Kind = v1alpha1.SourceMachine })
	for _, i := range []*v1alpha1.WindowsInstance{&made, &own, &machine} {
		i.Namespace = namespace
	}
	r := newRig(t, list(map[string]string{"10.0.0.8": "username=b"}), &made, &own, &machine)
	r.reconcile(t)
	r.want(t, "10.0.0.7=a:22", "10.0.0.8=a:22")
	if len(r.heard) != 1 || !strings.Contains(r.heard[0], "was not made from windows-instances") {
		t.Errorf("events %q", r.heard)
	}
}
