package orphan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/scheme"
)

const (
	namespace = contract.OperatorNamespace
	nodeName  = "win-a"
	address   = "10.0.0.11"
	end       = "2027-01-29T08:00:00Z"
)

type rig struct {
	*Reconciler
	api    client.WithWatch
	broken map[string]error
	heard  []string
	clock  time.Time
	// kind is the CRD of WindowsInstances, or nil if the CRD does not exist.
	kind *metav1.ObjectMeta
}

// kindOf returns a reader that answers GET requests for the CRD.
func kindOf(r *rig) client.Reader {
	return interceptor.NewClient(r.api, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch,
		key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
		crd, is := o.(*metav1.PartialObjectMetadata)
		if !is || r.kind == nil || key.Name != contract.InstanceCRD {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "customresourcedefinitions"}, key.Name)
		}
		r.kind.DeepCopyInto(&crd.ObjectMeta)
		return nil
	}})
}

// The CRD of instances is deleted, and created again after more than the grace period. In between, no instances can
// exist, so nodes must not count as orphans. After that, each host gets an instance again.
func TestA80_NoNodeIsAnOrphanForWantOfTheKindOfInstances(t *testing.T) {
	t.Parallel()
	r := newRig(t, node())
	look := func(what string, after time.Duration) {
		r.clock = r.clock.Add(after)
		if n, _ := r.look(t); n.Spec.Unschedulable || len(r.heard) > 0 {
			t.Fatalf("%s: the node is taken out of service: %q", what, r.heard)
		}
	}
	deleted := metav1.NewTime(r.clock)
	r.kind.DeletionTimestamp = &deleted
	look("the CRD is being deleted", 0)
	look("the CRD is being deleted for long", 6*time.Minute)
	r.kind = nil
	look("the CRD is gone", time.Minute)
	look("the CRD is gone for long", 6*time.Minute)
	look("the CRD is just gone", 4*time.Minute)
	r.clock = r.clock.Add(time.Minute)
	r.kind = &metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(r.clock)}
	look("the CRD is back", 2*time.Minute)
	look("and the grace begins", 4*time.Minute)
	r.clock = r.clock.Add(6 * time.Minute)
	for range 3 {
		r.clock = r.clock.Add(policy.OrphanGrace)
		r.look(t)
	}
	if n, _ := r.look(t); !n.Spec.Unschedulable {
		t.Error("the orphan stays in service")
	}
}

func (r *rig) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.heard = append(r.heard, reason+" "+fmt.Sprintf(note, args...))
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := scheme.New(t)
	r := &rig{clock: time.Unix(1_800_000_000, 0), broken: map[string]error{},
		kind: &metav1.ObjectMeta{}}
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		// The cache has only instances in the operator's namespace.
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if _, is := o.(*v1alpha1.WindowsInstance); is && key.Namespace != namespace {
				return fmt.Errorf("unable to get %s: the namespace is not in the cache", key)
			}
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			return errors.Join(r.broken["list"], c.List(ctx, list, options...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := r.broken["create"]; err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
	}).Build()
	r.Reconciler = newReconciler(r.api, kindOf(r), r, namespace, func() time.Time { return r.clock })
	return r
}

// look reconciles the Node. It returns the Node, or nil if the Node is deleted.
func (r *rig) look(t *testing.T) (*corev1.Node, time.Duration) {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: nodeName}})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{}
	if err = r.api.Get(t.Context(), client.ObjectKey{Name: nodeName}, node); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		return nil, result.RequeueAfter
	}
	return node, result.RequeueAfter
}

// leave deletes an instance that has this removal policy, and sends the event to the controller.
func (r *rig) leave(removal v1alpha1.RemovalPolicy) {
	i := instance()
	i.Spec.RemovalPolicy = removal
	r.deleted(i)
}

func instance() *v1alpha1.WindowsInstance {
	i := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: address}}
	i.Spec.Address, i.Status.NodeName = address, nodeName
	return i
}

// another returns the instance of a different host. nodeName is empty if that host has no node.
func another(nodeName string) *v1alpha1.WindowsInstance {
	i := instance()
	i.Name, i.Spec.Address, i.Status.NodeName = "10.0.0.12", "10.0.0.12", nodeName
	return i
}

// node returns a Node that kubelet registered, and on which a daemon has reported.
func node(edit ...func(n *corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "node",
		Labels: map[string]string{corev1.LabelOSStable: "windows"},
		Annotations: map[string]string{contract.BootIDAnnotation: "boot-1",
			contract.CertificateEndAnnotation: end}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	for _, e := range edit {
		e(n)
	}
	return n
}

func TestANodeOfOursWithoutAnInstanceIsTakenOutOfServiceAndReported(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]*corev1.Node{
		"as kubelet registered it": node(),
		"with the mark of an instance that lost its finalizer": node(func(n *corev1.Node) {
			n.Annotations[contract.InstanceAnnotation] = namespace + "/" + address
		}),
		"in the middle of an update": node(func(n *corev1.Node) {
			n.Annotations[contract.InstanceAnnotation] = namespace + "/" + address
			n.Spec.Unschedulable, n.Annotations[contract.CordonedAnnotation] = true, "true"
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, n)
			was := n.Spec.Unschedulable
			if n, after := r.look(t); n.Spec.Unschedulable != was || after != policy.OrphanGrace {
				t.Fatalf("cordoned %t at first, reconciled again after %s", n.Spec.Unschedulable, after)
			}
			r.clock = r.clock.Add(policy.OrphanGrace)
			n, _ := r.look(t)
			if !n.Spec.Unschedulable || n.Annotations[contract.CordonedAnnotation] != "true" {
				t.Errorf("the node is not cordoned: %v", n.Annotations)
			}
			if fleet := policy.NewFleet([]corev1.Node{*n}, nil, nil, nil); len(fleet.Members) > 0 {
				t.Errorf("the node holds a slot in the rollout budget: %+v", fleet.Members)
			}
			if _, released := n.Annotations[contract.ReleasedAnnotation]; released {
				t.Error("the host is cleaned, although its removal was not forced")
			}
			if len(r.heard) != 1 || !strings.Contains(r.heard[0], "W715") || !strings.Contains(r.heard[0], "list the host") {
				t.Errorf("events %q", r.heard)
			}
			r.look(t)
			if len(r.heard) != 1 {
				t.Errorf("reported a second time: %q", r.heard)
			}
		})
	}
}

func TestNodesThatAnInstanceHasOrMayGetAreLeftAlone(t *testing.T) {
	t.Parallel()
	for name, objects := range map[string][]client.Object{
		"a join under way":                    {node(), instance()},
		"an instance that does not exist yet": {node(), func() *v1alpha1.WindowsInstance { i := instance(); i.Status.NodeName = ""; return i }()},
		"an instance that was created again, by its name": {node(func(n *corev1.Node) {
			n.Annotations[contract.InstanceAnnotation] = namespace + "/" + address
			n.Status.Addresses = nil
		}), func() *v1alpha1.WindowsInstance { i := instance(); i.Status.NodeName = ""; return i }()},
		"another operator's node":           {node(func(n *corev1.Node) { n.Annotations = map[string]string{contract.RevisionAnnotation: "10.20.0"} })},
		"a Linux node with our annotations": {node(func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "linux" })},
		"a host that leaves, at its last step": {node(), func() *v1alpha1.WindowsInstance {
			i := instance()
			i.Finalizers = []string{contract.InstanceFinalizer}
			i.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
			return i
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, objects...)
			r.look(t)
			r.clock = r.clock.Add(2 * policy.OrphanGrace)
			if n, _ := r.look(t); n.Spec.Unschedulable || len(r.heard) > 0 {
				t.Errorf("cordoned %t, events %q", n.Spec.Unschedulable, r.heard)
			}
		})
	}
}

func TestInstancesThatAreBackInTimeFindTheirNodesInService(t *testing.T) {
	t.Parallel()
	r := newRig(t, node())
	r.look(t)
	r.clock = r.clock.Add(policy.OrphanGrace - time.Second)
	r.look(t)
	if err := r.api.Create(t.Context(), instance()); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(time.Minute)
	r.look(t)
	if err := r.api.Delete(t.Context(), instance()); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(time.Minute)
	if n, after := r.look(t); n.Spec.Unschedulable || after != policy.OrphanGrace {
		t.Errorf("cordoned %t; the rest of the grace period is %s", n.Spec.Unschedulable, after)
	}
}

func TestNothingIsDoneWhileItIsNotKnownWhichInstancesThereAre(t *testing.T) {
	t.Parallel()
	r := newRig(t, node())
	r.look(t)
	r.clock = r.clock.Add(2 * policy.OrphanGrace)
	r.broken["list"] = errors.New("the API server is away")
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: nodeName}}); err == nil {
		t.Error("no error")
	}
	n := &corev1.Node{}
	if err := r.api.Get(t.Context(), client.ObjectKey{Name: nodeName}, n); err != nil || n.Spec.Unschedulable {
		t.Errorf("cordoned %t, %v", n.Spec.Unschedulable, err)
	}
}

func TestAHostWhoseRemovalWasForcedIsReleasedWhenItComesBackAndItsNodeGoesWithIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.leave(v1alpha1.RemovalForce)
	r.broken["create"] = errors.New("the API server is away")
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: nodeName}}); err == nil {
		t.Fatal("no error was returned, so the removal is never recorded")
	}
	delete(r.broken, "create")
	r.look(t)
	other := newRig(t) // an operator that has just started
	r.Reconciler = newReconciler(r.api, kindOf(r), other, namespace, func() time.Time { return r.clock })
	if err := r.api.Create(t.Context(), node()); err != nil {
		t.Fatal(err)
	}
	if n, _ := r.look(t); n.Annotations[contract.ReleasedAnnotation] != "" {
		t.Fatal("the host is released at once")
	}
	r.clock = r.clock.Add(policy.OrphanGrace)
	n, _ := r.look(t)
	if n.Annotations[contract.ReleasedAnnotation] != end || !n.Spec.Unschedulable {
		t.Fatalf("the host is not released: %v", n.Annotations)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
		LastTransitionTime: metav1.Time{Time: r.clock}}}
	if err := r.api.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if n, after := r.look(t); n == nil || after == 0 {
		t.Fatal("the Node is deleted at once, or not reconciled again")
	}
	r.clock = r.clock.Add(policy.OrphanGrace)
	if n, _ = r.look(t); n != nil {
		t.Error("the host is clean, but its Node still exists")
	}
	if there, err := r.isReleased(t.Context(), nodeName); err != nil || there {
		t.Errorf("the host is still recorded: %t, %v", there, err)
	}
}

// After the daemon's certificate has expired, only kubelet can write to the Node. So the Node lacks the daemon's
// annotations.
func TestAHostThatComesBackWithoutItsDaemonIsTakenOutOfService(t *testing.T) {
	t.Parallel()
	bare := func(n *corev1.Node) {
		n.Annotations, n.Labels[contract.OSIDLabel] = nil, contract.OSIDWindows
	}
	for name, c := range map[string]struct {
		forced  bool
		node    *corev1.Node
		cordons bool
	}{
		"it was removed by force":                               {true, node(bare), true},
		"its removal was not forced":                            {false, node(bare), false},
		"another machine has the name, which we did not set up": {true, node(bare, func(n *corev1.Node) { delete(n.Labels, contract.OSIDLabel) }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if c.forced {
				r.leave(v1alpha1.RemovalForce)
				r.look(t)
			}
			if err := r.api.Create(t.Context(), c.node); err != nil {
				t.Fatal(err)
			}
			r.look(t)
			r.clock = r.clock.Add(policy.OrphanGrace)
			n, _ := r.look(t)
			if n.Spec.Unschedulable != c.cordons || (len(r.heard) > 0) != c.cordons {
				t.Fatalf("cordoned %t, events %q", n.Spec.Unschedulable, r.heard)
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.Time{Time: r.clock}}}
			if err := r.api.Status().Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			r.clock = r.clock.Add(2 * policy.OrphanGrace)
			if n, _ = r.look(t); n == nil {
				t.Error("a node without the operator's marks was deleted")
			}
		})
	}
}

func TestAHostThatIsListedAgainIsNoLongerReleased(t *testing.T) {
	t.Parallel()
	r := newRig(t, node(func(n *corev1.Node) { n.Annotations[contract.ReleasedAnnotation] = end }))
	r.leave(v1alpha1.RemovalForce)
	r.look(t)
	if err := r.api.Create(t.Context(), instance()); err != nil {
		t.Fatal(err)
	}
	if n, _ := r.look(t); n.Annotations[contract.ReleasedAnnotation] != "" {
		t.Error("the host is still released")
	}
	if there, err := r.isReleased(t.Context(), nodeName); err != nil || there {
		t.Errorf("the host is still recorded: %t, %v", there, err)
	}
}

// If a Machine is deleted while its host joins, kubelet may register the Node after the instance was deleted.
func TestTheNodeOfAHostThatWentWithItsMachineGoesToo(t *testing.T) {
	t.Parallel()
	registered := func(edit func(n *corev1.Node)) *corev1.Node {
		return node(func(n *corev1.Node) {
			n.Annotations, n.CreationTimestamp = nil, metav1.NewTime(time.Unix(1_800_000_001, 0))
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.NewTime(time.Unix(1_800_000_040, 0))}}
			edit(n)
		})
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		goes bool
	}{
		"registered as the host went": {registered(func(*corev1.Node) {}), true},
		"Ready":                       {registered(func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue }), false},
		"at another address":          {registered(func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.99" }), false},
		"there before the instance": {registered(func(n *corev1.Node) {
			n.CreationTimestamp = metav1.NewTime(time.Unix(1_799_000_000, 0))
		}), false},
		"made much later": {registered(func(n *corev1.Node) {
			n.CreationTimestamp = metav1.NewTime(time.Unix(1_800_000_001, 0).Add(policy.OrphanGrace))
		}), false},
		"of another system": {registered(func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "linux" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.node)
			i := instance()
			i.Spec.RemovalPolicy, i.CreationTimestamp = v1alpha1.RemovalDiscard, metav1.NewTime(r.clock.Add(-time.Minute))
			r.deleted(i)
			if n, _ := r.look(t); n == nil {
				t.Fatal("the Node is deleted at once")
			}
			r.clock = r.clock.Add(policy.OrphanGrace)
			if n, _ := r.look(t); n == nil {
				t.Fatal("the Node is deleted before it has been NotReady for long enough")
			}
			r.clock = r.clock.Add(time.Minute)
			if n, _ := r.look(t); (n == nil) != test.goes {
				t.Errorf("the Node was deleted: %t", n == nil)
			}
		})
	}
}

// A new host may have the name and the address of an earlier host. The new host's Node must not be deleted.
func TestANodeThatAnInstanceHasAgainIsNotOneOfAMachineThatWent(t *testing.T) {
	t.Parallel()
	i := instance()
	r := newRig(t, i, node(func(n *corev1.Node) {
		n.Annotations, n.CreationTimestamp = nil, metav1.NewTime(time.Unix(1_800_000_001, 0))
	}))
	went := instance()
	went.Spec.RemovalPolicy = v1alpha1.RemovalDiscard
	r.deleted(went)
	r.look(t)
	if err := r.api.Delete(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	r.look(t)
	r.clock = r.clock.Add(policy.OrphanGrace)
	if n, _ := r.look(t); n == nil || n.Spec.Unschedulable {
		t.Errorf("a foreign node is %v", n)
	}
}

// plan reconciles the Node during an hour, at the times that the controller requests. It returns the Node.
func (r *rig) plan(t *testing.T) *corev1.Node {
	t.Helper()
	n, after := r.look(t)
	for end := r.clock.Add(time.Hour); n != nil && after > 0 && r.clock.Before(end); n, after = r.look(t) {
		r.clock = r.clock.Add(max(after, time.Minute)) // looking more often is useless
	}
	return n
}

// An instance could get this Node, but gets a different Node. No event about this Node reports this, so the controller
// must check again.
func TestANodeThatAnInstanceWasToGetIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node  *corev1.Node
		went  bool
		found func(n *corev1.Node) bool
	}{
		"it has the address that the next Machine got": {node(func(n *corev1.Node) {
			n.Annotations, n.CreationTimestamp = nil, metav1.NewTime(time.Unix(1_800_000_001, 0))
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.NewTime(time.Unix(1_800_000_040, 0))}}
		}), true, func(n *corev1.Node) bool { return n == nil }},
		"it names the instance": {node(func(n *corev1.Node) {
			n.Annotations[contract.InstanceAnnotation] = namespace + "/machine-b"
			n.Status.Addresses = nil
		}), false, func(n *corev1.Node) bool { return n != nil && n.Spec.Unschedulable }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := instance()
			next.Name, next.Status.NodeName = "machine-b", ""
			r := newRig(t, next, test.node)
			if test.went {
				i := instance()
				i.Spec.RemovalPolicy = v1alpha1.RemovalDiscard
				r.deleted(i)
			}
			before, after := r.look(t)
			if after != policy.OrphanGrace {
				t.Fatalf("reconciled again after %s", after)
			}
			r.clock = r.clock.Add(after)
			if n, _ := r.look(t); n == nil || n.ResourceVersion != before.ResourceVersion {
				t.Fatal("the Node is written, although the instance may get it")
			}
			next.Status.NodeName = "win-b"
			if err := r.api.Update(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			r.clock = r.clock.Add(after)
			if n := r.plan(t); !test.found(n) {
				t.Errorf("the orphaned Node is %+v", n)
			}
		})
	}
}

// The kubelet of a released host may write into its own Node the name of an instance that has no Node yet. Once this
// instance has a different Node, the host must be released again.
func TestA54_AReleasedNodeThatNamesAnInstanceIsReleasedAgainOnceThatHasAnother(t *testing.T) {
	t.Parallel()
	waiting := another("")
	r := newRig(t, waiting, node(func(n *corev1.Node) {
		n.Annotations[contract.InstanceAnnotation] = namespace + "/10.0.0.12"
	}))
	r.leave(v1alpha1.RemovalForce)
	r.look(t)
	waiting.Status.NodeName = "win-b"
	if err := r.api.Update(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	if n := r.plan(t); n == nil || n.Annotations[contract.ReleasedAnnotation] == "" || !n.Spec.Unschedulable {
		t.Errorf("the host is not released: %+v", n)
	}
}

func TestOnlyAForcedRemovalIsRecorded(t *testing.T) {
	t.Parallel()
	for _, removal := range []v1alpha1.RemovalPolicy{"", v1alpha1.RemovalClean, v1alpha1.RemovalDiscard} {
		r := newRig(t)
		r.leave(removal)
		r.look(t)
		if there, err := r.isReleased(t.Context(), nodeName); err != nil || there {
			t.Errorf("%s: %t, %v", removal, there, err)
		}
	}
}

func TestTheRecordForgetsHostsThatCanNotComeBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.addReleased(t.Context(), "old"); err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(recordLife + time.Hour)
	if err := r.addReleased(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	old, err := r.isReleased(t.Context(), "old")
	if err != nil || old {
		t.Errorf("old %t, %v", old, err)
	}
}

// A kubelet may write any annotation into its own Node, so it could write the name of an instance in another namespace.
func TestAnInstanceOfAnotherNamespaceHasNoNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, node(func(n *corev1.Node) { n.Annotations[contract.InstanceAnnotation] = "elsewhere/any" }))
	r.look(t)
	r.clock = r.clock.Add(policy.OrphanGrace)
	if n, _ := r.look(t); n == nil || !n.Spec.Unschedulable {
		t.Errorf("the node stays in service: %+v", n)
	}
}

// The host was released and registers again. Its Node's annotation contains an instance that has a different Node.
func TestA54_ANodeThatNamesTheInstanceOfAnotherHostIsTakenOutOfService(t *testing.T) {
	t.Parallel()
	r := newRig(t, another("win-b"), node(func(n *corev1.Node) {
		n.Annotations[contract.InstanceAnnotation] = namespace + "/10.0.0.12"
	}))
	r.look(t)
	r.clock = r.clock.Add(policy.OrphanGrace)
	if n, _ := r.look(t); n == nil || !n.Spec.Unschedulable || len(r.heard) != 1 {
		t.Errorf("the node stays in service: %+v, events %q", n, r.heard)
	}
}

// The kubelet of a released host reports the address of another host, which has its own Node.
func TestA54_ANodeThatSaysTheAddressOfAnotherHostIsTakenOutOfService(t *testing.T) {
	t.Parallel()
	another := instance()
	another.Name, another.Status.NodeName = "10.0.0.12", "win-b"
	r := newRig(t, another, node())
	r.look(t)
	r.clock = r.clock.Add(policy.OrphanGrace)
	if n, _ := r.look(t); n == nil || !n.Spec.Unschedulable || len(r.heard) != 1 {
		t.Errorf("the node stays in service: %+v, events %q", n, r.heard)
	}
}

// The kubelet of a released host reports the address of a listed host that the operator has never reached.
func TestA54_AReleasedNodeThatSaysAnAddressIsReleasedAgainOnceAnotherHasIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, node())
	r.leave(v1alpha1.RemovalForce)
	r.look(t)
	waiting := instance()
	waiting.Name, waiting.Status.NodeName = "10.0.0.12", ""
	if err := r.api.Create(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	r.look(t)
	waiting.Status.NodeName = "win-b"
	if err := r.api.Update(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
	r.look(t)
	r.clock = r.clock.Add(policy.OrphanGrace)
	if n, _ := r.look(t); n == nil || n.Annotations[contract.ReleasedAnnotation] == "" || !n.Spec.Unschedulable {
		t.Errorf("the host is not released: %+v", n)
	}
}
