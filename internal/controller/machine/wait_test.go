package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
)

// queue is a cluster in which Machine m waits for its address, because instances that a user created still have it.
// These instances are being removed.
type queue struct {
	*Reconciler
	t     *testing.T
	api   client.Client
	kinds kinds
	clock time.Time
	// platform is the cluster's platform.
	platform contract.Platform
	// unknown is why the platform is unknown, or nil.
	unknown error
	said    []string
}

func (q *queue) Eventf(regarding, _ runtime.Object, _, reason, action, note string, args ...any) {
	name := regarding.(*corev1.ObjectReference).Name
	q.said = append(q.said, name+" "+reason+" "+action+" "+fmt.Sprintf(note, args...))
}

func newQueue(t *testing.T, holders ...string) *queue {
	t.Helper()
	q := &queue{t: t, platform: contract.PlatformAWS, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	q.api = fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(&machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: "m", UID: "m", Labels: windows()},
		Status: machinev1beta1.MachineStatus{Phase: ptr.To(machinev1beta1.PhaseProvisioned),
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}},
	}).WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
		options ...client.CreateOption) error {
		// An instance of a Machine must be created with the finalizer, because adding it later costs an additional
		// request. No controller removes finalizers in these tests, so this function removes it.
		if i, is := o.(*v1alpha1.WindowsInstance); is && i.Spec.Source != nil {
			if !slices.Equal(i.Finalizers, []string{contract.InstanceFinalizer}) {
				t.Errorf("instance %s is created with the finalizers %v", i.Name, i.Finalizers)
			}
			i.Finalizers = nil
		}
		return c.Create(ctx, o, options...)
	}}).Build()
	for _, name := range holders {
		i := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Finalizers: []string{contract.InstanceFinalizer}},
			Spec: v1alpha1.WindowsInstanceSpec{Address: "10.0.0.1", Username: "x"}}
		if err := q.api.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		if err := q.api.Delete(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	q.kinds = kinds{Reader: q.api}
	q.restart()
	return q
}

// kinds is a reader without a cache. It returns the CRD of Machines unless absent is set.
type kinds struct {
	client.Reader
	absent bool
}

func (k *kinds) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, is := o.(*metav1.PartialObjectMetadata); !is {
		return k.Reader.Get(ctx, key, o, options...)
	}
	if k.absent {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, key.Name)
	}
	return nil
}

// If a user deletes the CRD of Machines, no host is deleted.
func TestA80_AnInstanceStaysWhoseMachineVanishesWithItsKind(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	_, _ = q.Reconcile(t.Context(), ctrl.Request{})
	key := client.ObjectKey{Namespace: namespace, Name: "m"}
	if err := q.api.Get(t.Context(), key, &v1alpha1.WindowsInstance{}); err != nil {
		t.Fatal(err)
	}
	m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: "m"}}
	if err := q.api.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	q.kinds.absent = true
	if _, err := q.Reconcile(t.Context(), ctrl.Request{}); err == nil {
		t.Error("no event says why the instance stays")
	}
	if err := q.api.Get(t.Context(), key, &v1alpha1.WindowsInstance{}); err != nil {
		t.Fatalf("the instance was deleted: %v", err)
	}
	q.kinds.absent = false
	if _, err := q.Reconcile(t.Context(), ctrl.Request{}); err != nil {
		t.Fatal(err)
	}
	if err := q.api.Get(t.Context(), key, &v1alpha1.WindowsInstance{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Machine was deleted, but the instance stays: %v", err)
	}
}

// Reconcile does the same as the controller, except for the replacement of Machines.
func (q *queue) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	v, err := q.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	again, err := q.project(ctx, v)
	return ctrl.Result{RequeueAfter: again}, err
}

// overSSH implements Options.ByItself.
func overSSH(context.Context) (bool, error) { return false, nil }

// restart simulates a new operator process.
func (q *queue) restart() {
	q.Reconciler = &Reconciler{client: q.api, machines: q.api, live: &q.kinds, events: q,
		hasAddress: func(context.Context, string) bool { return false },
		options: Options{Namespace: namespace, Problems: problem.NewState(), View: NewView(&q.kinds), ByItself: overSSH,
			Now: func() time.Time { return q.clock },
			Platform: func(context.Context) (contract.Platform, error) {
				if q.unknown != nil {
					return "", q.unknown
				}
				return q.platform, nil
			}}}
}

// gone removes the finalizer of an instance that is being deleted.
func (q *queue) gone(name string) {
	q.t.Helper()
	i := &v1alpha1.WindowsInstance{}
	if err := q.api.Get(q.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, i); err != nil {
		q.t.Fatal(err)
	}
	i.Finalizers = nil
	if err := q.api.Update(q.t.Context(), i); err != nil {
		q.t.Fatal(err)
	}
}

// after lets some time pass and reconciles. Then it checks the number of events so far and the time until the next
// reconcile.
func (q *queue) after(passed time.Duration, logged int, again time.Duration) {
	q.t.Helper()
	q.clock = q.clock.Add(passed)
	result, err := q.Reconcile(q.t.Context(), ctrl.Request{})
	if err != nil {
		q.t.Fatal(err)
	}
	if len(q.said) != logged || result.RequeueAfter != again {
		q.t.Fatalf("events %q, reconciled again after %s; want %d events, and %s",
			q.said, result.RequeueAfter, logged, again)
	}
}

func TestAMachineSaysThatItsAddressIsNotGivenUp(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "a")
	q.after(0, 0, time.Minute)
	q.after(20*time.Second, 0, 40*time.Second)
	q.after(40*time.Second, 1, 0)
	for _, part := range []string{"m " + eventSetupFailure + " ReadAddressDuplicate", "W103", "10.0.0.1", "WindowsInstance a ",
		"spec.removalPolicy", "Force"} {
		if !strings.Contains(q.said[0], part) {
			t.Errorf("%q lacks %q", q.said[0], part)
		}
	}
	q.after(time.Second, 1, 0)
	q.after(time.Hour, 1, 0)
	q.restart()
	q.after(0, 1, time.Minute)
	q.after(time.Minute, 2, 0)
	q.gone("a")
	q.after(time.Second, 2, 0)
	if err := q.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "m"},
		&v1alpha1.WindowsInstance{}); err != nil {
		t.Error(err)
	}
}

func TestAMachineThatWaitsForItsAddressForAShortTimeSaysNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "a")
	q.after(0, 0, time.Minute)
	q.gone("a")
	q.after(59*time.Second, 0, 0)
	q.after(time.Hour, 0, 0)
}

func TestAMachineSaysWhichInstanceHasItsAddressNow(t *testing.T) {
	t.Parallel()
	q := newQueue(t, "a", "b")
	q.after(0, 0, time.Minute)
	q.gone("a")
	q.after(50*time.Second, 0, 10*time.Second)
	q.after(10*time.Second, 1, 0)
	if !strings.Contains(q.said[0], "WindowsInstance b ") {
		t.Errorf("the events are %q", q.said)
	}
}
