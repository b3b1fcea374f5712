package machine

import (
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/instance/credential"
)

// keyIs returns the private key, as the user currently provides it.
type keyIs struct {
	hash string
	err  error
}

func (k *keyIs) PrivateKey(context.Context) (credential.Key, error) {
	return credential.Key{Hash: k.hash}, k.err
}

// yard is a cluster with one MachineSet. All Machines of the set are nodes, and their hosts accepted key a.
type yard struct {
	*Reconciler
	t            *testing.T
	api          client.WithWatch
	cached, live *keyIs
	clock        time.Time
	// skew is how far the operator's clock is ahead of the API server's clock.
	skew   time.Duration
	said   []string
	denied error
	// byCloud means that another client deletes the Machine first.
	byCloud bool
	// stale contains Machines as a stale cache shows them.
	stale map[string]*machinev1beta1.Machine
}

func (y *yard) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	name := regarding.(*corev1.ObjectReference).Name
	y.said = append(y.said, name+" "+reason+" "+fmt.Sprintf(note, args...))
}

// lagging reads Machines from the stale cache.
type lagging struct {
	client.Reader
	y *yard
}

func (l lagging) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	err := l.Reader.List(ctx, list, o...)
	if machines, ok := list.(*machinev1beta1.MachineList); ok {
		for i := range machines.Items {
			if old := l.y.stale[machines.Items[i].Name]; old != nil {
				machines.Items[i] = *old
			}
		}
	}
	return err
}

func newYard(t *testing.T, replicas int) *yard {
	t.Helper()
	y := &yard{t: t, cached: &keyIs{hash: "a"}, live: &keyIs{hash: "a"},
		clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), stale: map[string]*machinev1beta1.Machine{}}
	y.api = fake.NewClientBuilder().WithScheme(testScheme(t)).WithStatusSubresource(&v1alpha1.WindowsInstance{},
		&machinev1beta1.Machine{}).
		WithInterceptorFuncs(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object,
			options ...client.DeleteOption) error {
			if _, is := o.(*machinev1beta1.Machine); !is || y.byCloud {
				return c.Delete(ctx, o, options...)
			}
			if y.denied != nil {
				return y.denied
			}
			requested := (&client.DeleteOptions{}).ApplyOptions(options)
			if requested.Preconditions == nil || requested.Preconditions.ResourceVersion == nil ||
				*requested.Preconditions.UID != o.GetUID() {
				t.Error("a Machine was deleted without a check of its version")
			}
			return c.Delete(ctx, o, options...)
		}}).Build()
	set := &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace,
		Name: "set", UID: "set"}, Spec: machinev1beta1.MachineSetSpec{Replicas: ptr.To(int32(replicas))}}
	y.create(set)
	for n := range replicas {
		y.machine(fmt.Sprintf("m%d", n), true)
	}
	y.restart()
	return y
}

// now returns the time of the operator's clock.
func (y *yard) now() time.Time { return y.clock.Add(y.skew) }

// restart simulates a new operator process.
func (y *yard) restart() {
	view := NewView(y.api)
	var reader client.Reader = lagging{y.api, y}
	view.cached.Store(&reader)
	places, err := rollout.New(rollout.Options{Cached: y.api, Live: y.api, Writer: y.api, Sets: view,
		Namespace: namespace, Now: y.now})
	if err != nil {
		y.t.Fatal(err)
	}
	y.Reconciler = &Reconciler{client: y.api, machines: reader, live: y.api, events: y,
		options: Options{Namespace: namespace, Keys: y.cached, LiveKeys: y.live, RefusalTimeout: DefaultRefusalTimeout,
			UserData: published, Now: y.now, View: view, Rollout: places},
	}
}

// published implements Options.UserData.
func published(context.Context, string) (bool, error) { return true, nil }

// Reconcile only replaces Machines. It doesn't create or remove instances.
func (y *yard) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	v, err := y.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	again, err := y.replaceAll(ctx, v)
	return ctrl.Result{RequeueAfter: again}, err
}

func (y *yard) create(objects ...client.Object) {
	y.t.Helper()
	for _, o := range objects {
		if err := y.api.Create(y.t.Context(), o); err != nil {
			y.t.Fatal(err)
		}
	}
}

// machine creates a Machine of the set, and its instance. If joined is true, it also creates the Node.
func (y *yard) machine(name string, joined bool) {
	y.t.Helper()
	y.create(&machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: contract.MachineAPINamespace, Name: name, UID: types.UID("uid-" + name), Labels: windows(),
		CreationTimestamp: metav1.NewTime(y.clock),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: contract.MachineAPIVersion, Kind: ownerKind,
			Name: "set", UID: "set", Controller: ptr.To(true)}},
	}})
	i := &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("instance-" + name)},
		Spec: v1alpha1.WindowsInstanceSpec{Source: &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: name,
			UID: types.UID("uid-" + name)}},
	}
	y.create(i)
	if !joined {
		return
	}
	i.Status = v1alpha1.WindowsInstanceStatus{NodeName: name, HeldRevision: "1", PublicKeyHash: y.live.hash}
	if err := y.api.Status().Update(y.t.Context(), i); err != nil {
		y.t.Fatal(err)
	}
	y.create(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{contract.OSIDLabel: contract.OSIDWindows}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
			Status: corev1.ConditionTrue}}},
	})
}

// refuses simulates hosts that have refused the current key for so long, and so often, that their Machines must be
// replaced.
func (y *yard) refuses(names ...string) {
	y.t.Helper()
	for _, name := range names {
		i := &v1alpha1.WindowsInstance{}
		if err := y.api.Get(y.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, i); err != nil {
			y.t.Fatal(err)
		}
		now, since := metav1.NewTime(y.now()), metav1.NewTime(y.now().Add(-time.Hour))
		i.Status.KeyRefusal = &v1alpha1.KeyRefusal{PublicKeyHash: y.live.hash, Since: since, Time: now}
		if err := y.api.Status().Update(y.t.Context(), i); err != nil {
			y.t.Fatal(err)
		}
	}
}

func (y *yard) rotate(hash string) { y.cached.hash, y.live.hash = hash, hash }

func (y *yard) reconcile() ctrl.Result {
	y.t.Helper()
	result, err := y.Reconcile(y.t.Context(), ctrl.Request{})
	if err != nil {
		y.t.Fatal(err)
	}
	return result
}

// left returns the names of the Machines that still exist.
func (y *yard) left() (names []string) {
	y.t.Helper()
	list := &machinev1beta1.MachineList{}
	if err := y.api.List(y.t.Context(), list); err != nil {
		y.t.Fatal(err)
	}
	for _, m := range list.Items {
		names = append(names, m.Name)
	}
	return names
}

// gone deletes a Machine, its instance and its Node.
func (y *yard) gone(name string) {
	y.t.Helper()
	y.byCloud = true
	defer func() { y.byCloud = false }()
	for _, o := range []client.Object{
		&machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: name}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
	} {
		if err := client.IgnoreNotFound(y.api.Delete(y.t.Context(), o)); err != nil {
			y.t.Fatal(err)
		}
	}
}

func (y *yard) want(names ...string) {
	y.t.Helper()
	if got := y.left(); !slices.Equal(got, names) {
		y.t.Fatalf("the remaining Machines are %v, want %v; events %q", got, names, y.said)
	}
}

func TestA18_MachinesWithAnEarlierKeyAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	y := newYard(t, 3)
	y.reconcile()
	y.want("m0", "m1", "m2")
	y.rotate("b")
	y.reconcile() // the key was not tried on the hosts yet
	y.want("m0", "m1", "m2")
	y.refuses("m0", "m1", "m2")
	if result := y.reconcile(); result.RequeueAfter != recheck {
		t.Errorf("reconciled again after %s", result.RequeueAfter)
	}
	y.want("m1", "m2")
	y.restart() // a new operator must also count the deleted Machine as missing
	y.reconcile()
	y.want("m1", "m2")
	y.gone("m0")
	y.machine("n0", false)
	y.reconcile() // the replacement is not a node yet
	y.want("m1", "m2", "n0")
	y.gone("n0")
	y.machine("n1", true)
	y.reconcile()
	y.want("m2", "n1")
	if !slices.ContainsFunc(y.said, func(s string) bool {
		return strings.HasPrefix(s, "m0 "+eventDeleted) &&
			strings.Contains(s, "W820")
	}) {
		t.Errorf("the events are %q", y.said)
	}
	restricted := slices.DeleteFunc(slices.Clone(y.said),
		func(s string) bool { return !strings.HasPrefix(s, "m2 "+eventDeletionRestricted) })
	if len(restricted) != 2 || !strings.Contains(restricted[0], "W822") { // each operator reports it once
		t.Errorf("the events are %q", restricted)
	}
}

func TestAHostIsAskedAlthoughItsLastQuestionIsOfATimeToCome(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	y.rotate("b")
	y.refuses("m0")
	i := y.instance("m0")
	i.Annotations = map[string]string{contract.TryKeyAnnotation: y.clock.Add(74 * time.Hour).Format(time.RFC3339)}
	if err := y.api.Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	y.clock = y.clock.Add(72 * time.Hour)
	y.reconcile()
	if requested := y.instance("m0").Annotations[contract.TryKeyAnnotation]; requested != y.clock.Format(time.RFC3339) {
		t.Errorf("the host is asked at %q", requested)
	}
}

func TestA18_AMachineIsReplacedOnlyAfterItsHostWasAskedAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2)
	y.rotate("b")
	y.refuses("m0")
	y.clock = y.clock.Add(72 * time.Hour) // only now, the budget allows the deletion
	y.reconcile()
	y.want("m0", "m1")
	requested := y.instance("m0").Annotations[contract.TryKeyAnnotation]
	if requested != y.clock.Format(time.RFC3339) {
		t.Errorf("the host is asked at %q", requested)
	}
	y.clock = y.clock.Add(10 * time.Second)
	y.reconcile()
	y.want("m0", "m1")
	if again := y.instance("m0").Annotations[contract.TryKeyAnnotation]; again != requested {
		t.Errorf("the host is asked again before it could answer: %q", again)
	}
	if y.instance("m1").Annotations[contract.TryKeyAnnotation] != "" {
		t.Error("a host is asked that has refused no key")
	}
	y.refuses("m0")
	y.reconcile()
	y.want("m1")
}

// instance returns the instance with a name.
func (y *yard) instance(name string) *v1alpha1.WindowsInstance {
	y.t.Helper()
	i := &v1alpha1.WindowsInstance{}
	if err := y.api.Get(y.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, i); err != nil {
		y.t.Fatal(err)
	}
	return i
}

func TestA18_AKeyThatComesBackReplacesNobodyWhoHasIt(t *testing.T) {
	t.Parallel()
	y := newYard(t, 3)
	y.rotate("b")
	y.refuses("m0", "m1", "m2")
	y.rotate("a")
	y.reconcile()
	y.want("m0", "m1", "m2")
	y.rotate("b")
	y.live.hash = "a" // the cache does not show yet that the old key is current again
	y.reconcile()
	y.want("m0", "m1", "m2")
}

func TestA19_AMachineThatNeverLetUsInIsReplaced(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2)
	y.machine("x", false)
	y.scale(3)
	y.reconcile()
	y.want("m0", "m1", "x")
	y.refuses("x")
	y.reconcile()
	y.want("m0", "m1")
}

func TestA19_MostOfASetRefuseTheKeyAndItHealsOneByOne(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1)
	y.scale(3)
	y.machine("x", false)
	y.machine("y", false)
	y.refuses("x", "y")
	y.reconcile()
	y.want("m0", "y")
	y.gone("x")
	y.machine("n", false)
	y.reconcile() // the host of the replacement is not created yet
	y.want("m0", "n", "y")
	y.gone("n")
	y.machine("n1", true)
	y.reconcile()
	y.want("m0", "n1")
}

func TestTimeAloneMakesAMachineDue(t *testing.T) {
	t.Parallel()
	y := newYard(t, 0)
	y.scale(1)
	y.machine("x", false)
	y.refuses("x")
	y.clock = y.clock.Add(-time.Hour + time.Minute) // the host has refused the key for a minute
	if result := y.reconcile(); result.RequeueAfter != DefaultRefusalTimeout-time.Minute {
		t.Errorf("reconciled again after %s", result.RequeueAfter)
	}
	y.want("x")
	y.clock = y.clock.Add(DefaultRefusalTimeout - time.Minute)
	i := y.instance("x")
	i.Status.KeyRefusal.Time = metav1.Time{Time: y.clock}
	if err := y.api.Status().Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	y.reconcile()
	y.want()
}

// scale sets the number of replicas.
func (y *yard) scale(replicas int32) {
	y.t.Helper()
	y.changeSet(func(set *machinev1beta1.MachineSet) { set.Spec.Replicas = &replicas })
}

func (y *yard) changeSet(change func(*machinev1beta1.MachineSet)) {
	y.t.Helper()
	set := &machinev1beta1.MachineSet{}
	if err := y.api.Get(y.t.Context(), types.NamespacedName{Namespace: contract.MachineAPINamespace, Name: "set"},
		set); err != nil {
		y.t.Fatal(err)
	}
	change(set)
	if err := y.api.Update(y.t.Context(), set); err != nil {
		y.t.Fatal(err)
	}
}

func (y *yard) changeMachine(name string, change func(*machinev1beta1.Machine)) {
	y.t.Helper()
	m := &machinev1beta1.Machine{}
	if err := y.api.Get(y.t.Context(), types.NamespacedName{Namespace: contract.MachineAPINamespace, Name: name},
		m); err != nil {
		y.t.Fatal(err)
	}
	change(m)
	if err := y.api.Update(y.t.Context(), m); err != nil {
		y.t.Fatal(err)
	}
}

func TestWhatKeepsAMachineFromBeingReplacedIsSaidOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*yard)
		says   string
	}{
		"no set creates another Machine": {func(y *yard) {
			y.changeMachine("m0",
				func(m *machinev1beta1.Machine) { m.OwnerReferences = nil })
		}, "W823"},
		"its owner makes no others": {func(y *yard) {
			y.changeMachine(
				"m0", func(m *machinev1beta1.Machine) { m.OwnerReferences[0].Kind = "ControlPlaneMachineSet" })
		}, "W823"},
		"another set has taken the name": {func(y *yard) {
			y.changeMachine("m0", func(m *machinev1beta1.Machine) { m.OwnerReferences[0].UID = "past" })
		}, "W823"},
		"the user keeps us away": {func(y *yard) {
			y.changeMachine("m0", func(m *machinev1beta1.Machine) { m.Labels[contract.IgnoreLabel] = "true" })
		}, "W824"},
		"another API decides": {func(y *yard) { y.managedElsewhere("m0") }, "W825"},
		"the user wants all to serve": {func(y *yard) {
			y.changeSet(func(s *machinev1beta1.MachineSet) {
				s.Annotations = map[string]string{contract.MinAvailableAnnotation: "100%"}
			})
		}, "W822"},
		"its successors would have user data of the user's own": {func(y *yard) {
			y.changeSet(func(s *machinev1beta1.MachineSet) {
				s.Spec.Template.Spec.ProviderSpec.Value = &runtime.RawExtension{
					Raw: []byte(`{"kind":"X","userDataSecret":{"name":"my-own"}}`)}
			})
		}, "W827"},
		"its successors would be the same": {func(y *yard) { y.options.UserData = func(context.Context, string) (bool, error) { return false, nil } },
			"W827"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, 2)
			y.rotate("b")
			y.refuses("m0")
			test.change(y)
			for range 3 {
				y.reconcile()
			}
			y.want("m0", "m1")
			if len(y.said) != 1 || !strings.HasPrefix(y.said[0], "m0 "+eventDeletionRestricted) ||
				!strings.Contains(y.said[0], test.says) {
				t.Errorf("the events are %q, want %s", y.said, test.says)
			}
		})
	}
}

func (y *yard) managedElsewhere(name string) {
	y.t.Helper()
	m := &machinev1beta1.Machine{}
	if err := y.api.Get(y.t.Context(), types.NamespacedName{Namespace: contract.MachineAPINamespace, Name: name},
		m); err != nil {
		y.t.Fatal(err)
	}
	m.Status.AuthoritativeAPI = machinev1beta1.MachineAuthorityClusterAPI
	if err := y.api.Status().Update(y.t.Context(), m); err != nil {
		y.t.Fatal(err)
	}
}

func TestAMachineThatChangedMeanwhileIsNotDeleted(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2)
	y.rotate("b")
	y.refuses("m0")
	old := &machinev1beta1.Machine{}
	if err := y.api.Get(t.Context(), types.NamespacedName{Namespace: contract.MachineAPINamespace, Name: "m0"},
		old); err != nil {
		t.Fatal(err)
	}
	y.changeMachine("m0", func(m *machinev1beta1.Machine) { m.Labels[contract.IgnoreLabel] = "true" })
	y.stale["m0"] = old
	y.reconcile()
	y.want("m0", "m1")
}

// nodeIs simulates a kubelet whose Ready condition has had this status for an hour.
func (y *yard) nodeIs(name string, ready corev1.ConditionStatus) {
	y.t.Helper()
	node := &corev1.Node{}
	if err := y.api.Get(y.t.Context(), types.NamespacedName{Name: name}, node); err != nil {
		y.t.Fatal(err)
	}
	node.Status.Conditions[0].Status = ready
	node.Status.Conditions[0].LastTransitionTime = metav1.NewTime(y.clock.Add(-time.Hour))
	if err := y.api.Status().Update(y.t.Context(), node); err != nil {
		y.t.Fatal(err)
	}
	y.clock = y.clock.Add(-time.Hour)
	y.options.Rollout.Observed.NotReady(node)
	y.clock = y.clock.Add(time.Hour)
}

func TestADeletionThatIsRefusedIsSaid(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2)
	y.rotate("b")
	y.refuses("m0")
	y.denied = apierrors.NewForbidden(machinev1beta1.Resource("machines"), "m0", errors.New("a policy says no"))
	if _, err := y.Reconcile(t.Context(), ctrl.Request{}); err == nil {
		t.Error("the deletion is not retried")
	}
	if len(y.said) != 1 || !strings.HasPrefix(y.said[0], "m0 "+eventDeletionFailed) ||
		!strings.Contains(y.said[0], "a policy says no") {
		t.Errorf("the events are %q", y.said)
	}
	y.denied = nil
	y.reconcile()
	y.want("m1")
}

func TestWithoutAKeyNobodyIsReplaced(t *testing.T) {
	t.Parallel()
	y := newYard(t, 2)
	y.rotate("b")
	y.refuses("m0")
	y.cached.err = contract.NewProblem(contract.ReasonPrivateKeyMissing, "none")
	if result := y.reconcile(); result.RequeueAfter != 0 {
		t.Errorf("reconciled again after %s", result.RequeueAfter)
	}
	y.cached.err, y.live.err = nil, contract.NewProblem(contract.ReasonPrivateKeyInvalid, "encrypted")
	y.reconcile()
	y.want("m0", "m1")
}

func TestReplacingInVainEnds(t *testing.T) {
	t.Parallel()
	y := newYard(t, 0)
	y.scale(1)
	for n := range 5 {
		y.machine(fmt.Sprintf("x%d", n), false)
		y.refuses(fmt.Sprintf("x%d", n))
		y.reconcile()
		if n >= maxReplacements {
			y.want("x3")
			break
		}
		y.want()
		y.gone(fmt.Sprintf("x%d", n))
		y.clock = y.clock.Add(10 * time.Minute)
	}
	if last := y.said[len(y.said)-1]; !strings.Contains(last, "W826") {
		t.Errorf("the last event is %q", last)
	}
	y.rotate("c") // a new key resets the number of replacements
	y.refuses("x3")
	y.reconcile()
	y.want()
}

func TestA19_ReplacingInVainEndsThoughTheOperatorIsRestarted(t *testing.T) {
	t.Parallel()
	y := newYard(t, 0)
	y.scale(1)
	for n := range maxReplacements + 1 {
		name := fmt.Sprintf("x%d", n)
		y.machine(name, false)
		y.refuses(name)
		y.restart()
		y.reconcile()
		if n == maxReplacements {
			break
		}
		y.want()
		y.gone(name)
		y.clock = y.clock.Add(10 * time.Minute)
	}
	y.want(fmt.Sprintf("x%d", maxReplacements))
	if last := y.said[len(y.said)-1]; !strings.Contains(last, "W826") {
		t.Errorf("the last event is %q", last)
	}
	if err := y.api.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: contract.ReplacementsConfigMap}}); err != nil {
		t.Fatal(err)
	}
	y.reconcile() // the administrator has fixed the cause
	y.want()
}

// refusal returns the error of a webhook that refuses a deletion.
func refusal() error {
	return apierrors.NewForbidden(machinev1beta1.Resource("machines"), "x", errors.New("a webhook says no"))
}

// undeleted lets the operator try to delete three of six Machines. The deletions fail with the error denied. After
// three failed replacements, the operator replaces no more Machines.
func undeleted(t *testing.T, denied error) *yard {
	t.Helper()
	y := newYard(t, 3)
	y.scale(6)
	four := intstr.FromInt32(4)
	y.create(&v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject},
		Spec: v1alpha1.WindowsMachineConfigSpec{Rollout: v1alpha1.RolloutSpec{MaxUnavailable: &four}}})
	y.denied, y.clock = denied, y.clock.Add(time.Minute) // Machines whose hosts accept the key are older
	for n := range maxReplacements {
		name := fmt.Sprintf("x%d", n)
		y.machine(name, false)
		y.refuses(name)
		if _, err := y.Reconcile(t.Context(), ctrl.Request{}); err == nil {
			t.Fatal("the deletion is not retried")
		}
	}
	y.want("m0", "m1", "m2", "x0", "x1", "x2")
	y.denied = nil
	return y
}

func TestADeletionThatDidNotComeAboutIsNoReplacementInVain(t *testing.T) {
	t.Parallel()
	for name, denied := range map[string]error{
		"it was refused":               refusal(),
		"the operator ended before it": apierrors.NewTimeoutError("away", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := undeleted(t, denied)
			y.restart()
			y.reconcile()
			y.want("m0", "m1", "m2")
			for n := range maxReplacements {
				y.gone(fmt.Sprintf("x%d", n))
			}
			y.machine("n0", false) // now there are three replacements that did not help
			y.refuses("n0")
			y.reconcile()
			y.want("m0", "m1", "m2", "n0")
			if last := y.said[len(y.said)-1]; !strings.Contains(last, "W826") {
				t.Errorf("the last event is %q", last)
			}
		})
	}
}

func TestAMachineThatWasNotDeletedAndLetsUsInWasNotReplacedInVain(t *testing.T) {
	t.Parallel()
	y := undeleted(t, refusal())
	for n := range maxReplacements { // a user authorises the key on their hosts
		i := y.instance(fmt.Sprintf("x%d", n))
		i.Status.KeyRefusal, i.Status.PublicKeyHash = nil, y.live.hash
		if err := y.api.Status().Update(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	y.scale(7)
	y.machine("n0", false)
	y.refuses("n0")
	y.reconcile()
	y.want("m0", "m1", "m2", "x0", "x1", "x2")
}
