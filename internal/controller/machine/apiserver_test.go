package machine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/scheme"
)

const namespace = contract.OperatorNamespace

// stage is a real API server with the installed manifests. The controllers run with the operator's own account.
type stage struct {
	t       *testing.T
	lab     *cluster.Cluster
	admin   client.Client
	changed chan event.GenericEvent
	view    *View
	// syncTimeout is how long controllers wait for their first list before they fail. 0 means the default of
	// controller-runtime.
	syncTimeout time.Duration
}

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	return scheme.New(t, AddToScheme)
}

func newStage(t *testing.T) *stage {
	t.Helper()
	lab := plane.Start(t, cluster.Options{Audit: true})
	s := &stage{t: t, lab: lab, changed: make(chan event.GenericEvent, 1)}
	s.admin = s.connect(lab.Admin())
	plane.Ship(t, lab)
	return s
}

func (s *stage) connect(config *rest.Config) client.Client {
	s.t.Helper()
	c, err := client.New(config, client.Options{Scheme: testScheme(s.t)})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// start runs the controllers with the shipped rights until the test ends.
func (s *stage) start() {
	s.t.Helper()
	account, _, err := s.lab.ServiceAccountConfig(s.t.Context(), namespace, contract.OperatorServiceAccount, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(account, ctrl.Options{
		Scheme: testScheme(s.t), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Controller: config.Controller{SkipNameValidation: new(true), // needed for go test -count
			CacheSyncTimeout: s.syncTimeout},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.WindowsInstance{}: {Namespaces: map[string]cache.Config{namespace: {}}},
			&v1alpha1.WindowsMachineConfig{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField,
				contract.MachineConfigObject)},
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{
				namespace: {FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField,
					contract.PrivateKeySecret)},
			}},
		}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.view = NewView(mgr.GetAPIReader())
	gate, err := rollout.New(rollout.Options{Cached: mgr.GetClient(), Live: mgr.GetAPIReader(),
		Writer: mgr.GetClient(), Sets: s.view,
		Namespace: namespace})
	if err != nil {
		s.t.Fatal(err)
	}
	parse := func(pem []byte) (string, error) { return "hash of " + string(pem), nil }
	options := Options{
		Namespace: namespace, Changed: s.changed, RefusalTimeout: DefaultRefusalTimeout, Now: time.Now,
		Platform: func(context.Context) (contract.Platform, error) { return "azure", nil }, View: s.view, Rollout: gate,
		Problems: problem.NewState(), ByItself: overSSH, UserData: published,
		Keys:     credential.SecretKey{Reader: mgr.GetClient(), Namespace: namespace, Parse: parse},
		LiveKeys: credential.SecretKey{Reader: mgr.GetAPIReader(), Namespace: namespace, Live: true, Parse: parse},
	}
	if err = mgr.Add(&starter{mgr: mgr, retry: 100 * time.Millisecond, options: options}); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
}

// installMachineAPI installs the CRDs of the Machine API.
func (s *stage) installMachineAPI() {
	s.t.Helper()
	dirs, err := cluster.OpenShiftCRDDirs(s.t.Context(), "machine/v1beta1")
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = cluster.InstallCRDs(s.t.Context(), s.lab.Admin(), cluster.CRDOptions{
		Paths: dirs, Names: []string{"machines.machine.openshift.io", "machinesets.machine.openshift.io"},
		Filter: cluster.OpenShiftDefault,
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) create(objects ...client.Object) {
	s.t.Helper()
	for _, object := range objects {
		if err := s.admin.Create(s.t.Context(), object); err != nil {
			s.t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
		}
	}
}

// machine creates a Machine with a host.
func (s *stage) machine(name, address string) *machinev1beta1.Machine {
	s.t.Helper()
	m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: name,
		Labels: windows()}}
	s.create(m)
	s.status(m, func(m *machinev1beta1.Machine) {
		m.Status.Phase = ptr.To(machinev1beta1.PhaseProvisioned)
		m.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	})
	return m
}

func (s *stage) status(m *machinev1beta1.Machine, change func(*machinev1beta1.Machine)) {
	s.t.Helper()
	before := m.DeepCopy()
	change(m)
	if err := s.admin.Status().Patch(s.t.Context(), m, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) edit(m *machinev1beta1.Machine, change func(*machinev1beta1.Machine)) {
	s.t.Helper()
	before := m.DeepCopy()
	change(m)
	if err := s.admin.Patch(s.t.Context(), m, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// until waits until an instance meets a condition.
func (s *stage) until(name, what string, is func(*v1alpha1.WindowsInstance) bool) *v1alpha1.WindowsInstance {
	s.t.Helper()
	i := &v1alpha1.WindowsInstance{}
	s.wait(what, func(ctx context.Context) bool {
		return s.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, i) == nil && is(i)
	})
	return i
}

func (s *stage) untilGone(name string) {
	s.t.Helper()
	s.wait(name+" is gone", func(ctx context.Context) bool {
		return apierrors.IsNotFound(s.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name},
			&v1alpha1.WindowsInstance{}))
	})
}

func (s *stage) wait(what string, done func(ctx context.Context) bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) { return done(ctx), nil })
	if err != nil {
		s.t.Fatalf("waiting until %s: %v", what, err)
	}
}

// heard waits for an event about a Machine.
func (s *stage) heard(machine, reason, part string) {
	s.t.Helper()
	s.wait("an event says "+part, func(ctx context.Context) bool {
		list := &eventsv1.EventList{}
		if err := s.admin.List(ctx, list, client.InNamespace(contract.MachineAPINamespace)); err != nil {
			return false
		}
		for _, e := range list.Items {
			if e.Regarding.Name == machine && e.Reason == reason && strings.Contains(e.Note, part) {
				return true
			}
		}
		return false
	})
}

// held keeps an instance until its host is released, as the instance controller does.
func (s *stage) held(name string) {
	s.t.Helper()
	i := s.until(name, name+" is there", func(*v1alpha1.WindowsInstance) bool { return true })
	before := i.DeepCopy()
	i.Finalizers = []string{contract.InstanceFinalizer}
	if err := s.admin.Patch(s.t.Context(), i, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) release(name string) {
	s.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	i := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := s.admin.Patch(s.t.Context(), i, patch); err != nil {
		s.t.Fatal(err)
	}
}

// This test follows Machines from their creation to their deletion, with a real API server and the shipped rights.
func TestA03_MachinesAreFollowedFromWhereverTheyAre(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.start() // without the Machine API
	gone := &v1alpha1.WindowsInstance{
		Spec: v1alpha1.WindowsInstanceSpec{Source: &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "a", UID: "u"}}}
	if origin, err := s.view.Origin(t.Context(), gone); err != nil || origin.Exists {
		t.Errorf("without a Machine API a Machine is %+v, %v", origin, err)
	}
	s.installMachineAPI() // now the Machine API is installed

	a := s.machine("a", "10.0.0.1")
	i := s.until("a", "the Machine is an instance", func(*v1alpha1.WindowsInstance) bool { return true })
	if want := (v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "a", UID: a.UID}); i.Spec.Address != "10.0.0.1" ||
		i.Spec.Username != "capi" || *i.Spec.Source != want {
		t.Errorf("the instance is %+v", i.Spec)
	}
	s.edit(a, func(m *machinev1beta1.Machine) { m.Spec.ProviderID = ptr.To("azure:///a") })
	s.status(a, func(m *machinev1beta1.Machine) { m.Status.Addresses[0].Address = "10.0.0.2" })
	s.until("a", "it follows its Machine", func(i *v1alpha1.WindowsInstance) bool {
		return i.Spec.ProviderID == "azure:///a" && i.Spec.Address == "10.0.0.2"
	})
	if origin, err := s.view.Origin(t.Context(), i); err != nil || !origin.Exists || origin.Drains {
		t.Errorf("the Machine is %+v, %v", origin, err)
	}

	s.machine("twin", "10.0.0.2")
	s.heard("twin", eventSetupFailure, "W103")
	s.edit(a, func(m *machinev1beta1.Machine) { m.Labels[contract.IgnoreLabel] = "true" })
	s.until("a", "it is paused", func(i *v1alpha1.WindowsInstance) bool { return i.Spec.Paused })
	s.edit(a, func(m *machinev1beta1.Machine) { delete(m.Labels, contract.IgnoreLabel) })
	s.until("a", "it goes on", func(i *v1alpha1.WindowsInstance) bool {
		return !i.Spec.Paused && i.Annotations[contract.IgnoredAnnotation] == ""
	})

	s.held("a")
	if err := s.admin.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	left := s.until("a", "it leaves with its Machine",
		func(i *v1alpha1.WindowsInstance) bool { return !i.DeletionTimestamp.IsZero() })
	if left.Spec.RemovalPolicy != v1alpha1.RemovalDiscard {
		t.Errorf("the removal policy is %s", left.Spec.RemovalPolicy)
	}
	if origin, err := s.view.Origin(t.Context(), left); err != nil || origin.Exists {
		t.Errorf("the Machine is %+v, %v", origin, err)
	}
	again := s.machine("a", "10.0.0.1") // a new Machine with the same name
	s.release("a")
	s.until("a", "the next Machine of the name is an instance",
		func(i *v1alpha1.WindowsInstance) bool { return i.Spec.Source.UID == again.UID })
	s.until("twin", "the address is free", func(*v1alpha1.WindowsInstance) bool { return true })

	s.held("a")
	s.edit(again, func(m *machinev1beta1.Machine) { delete(m.Labels, contract.MachineOSLabel) })
	left = s.until("a", "it leaves when its Machine is ours no more",
		func(i *v1alpha1.WindowsInstance) bool { return !i.DeletionTimestamp.IsZero() })
	if left.Spec.RemovalPolicy != v1alpha1.RemovalClean {
		t.Errorf("the removal policy is %s, although the host stays", left.Spec.RemovalPolicy)
	}
	if err := s.admin.Delete(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	// A host that is destroyed during its cleanup must not be cleaned forever. The Machine lacks the label, so it isn't
	// in the cache, and no event reports its deletion.
	s.until(
		"a", "its host is given up", func(
			i *v1alpha1.WindowsInstance) bool {
			return i.Spec.RemovalPolicy == v1alpha1.RemovalDiscard
		})
	s.release("a")
	s.untilGone("a")
	s.nothingIsForbidden()
}

// The operator's rights in the namespace of the Machine API are applied separately. So they may be missing at first, be
// added later, and be removed again.
func TestWithoutRightsToReadMachinesTheOperatorGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.installMachineAPI()
	binding := s.revoke()
	s.syncTimeout = 5 * time.Second
	s.start()
	s.wait("no sets are known", func(ctx context.Context) bool {
		sets, err := s.view.Sets(ctx, true)
		return err == nil && sets == nil
	})
	s.wait("it is tried again", func(context.Context) bool { return s.forbidden("/machines") > 2 })
	s.create(binding)
	s.machine("a", "10.0.0.1")
	s.until("a", "the Machine is an instance", func(*v1alpha1.WindowsInstance) bool { return true })

	// Without rights, existing watches continue until the API server restarts.
	binding = s.revoke()
	before := s.forbidden("/machines")
	if err := errors.Join(s.lab.StopAPIServer(), s.lab.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.wait("Machines may not be read any more", func(context.Context) bool { return s.forbidden("/machines") > before+2 })
	if _, err := s.view.Sets(t.Context(), true); !apierrors.IsForbidden(err) {
		t.Errorf("sets that were known count as missing: %v", err)
	}
	s.create(binding)
	s.machine("b", "10.0.0.2")
	s.until("b", "the next Machine is an instance", func(*v1alpha1.WindowsInstance) bool { return true })
}

// revoke removes the operator's rights in the namespace of the Machine API. It returns the deleted RoleBinding, so that
// the test can restore the rights.
func (s *stage) revoke() *rbacv1.RoleBinding {
	s.t.Helper()
	list := &rbacv1.RoleBindingList{}
	if err := s.admin.List(s.t.Context(), list, client.InNamespace(contract.MachineAPINamespace)); err != nil {
		s.t.Fatal(err)
	}
	if len(list.Items) != 1 {
		s.t.Fatalf("%d bindings give rights in %s", len(list.Items), contract.MachineAPINamespace)
	}
	binding := &list.Items[0]
	if err := s.admin.Delete(s.t.Context(), binding.DeepCopy()); err != nil {
		s.t.Fatal(err)
	}
	binding.ResourceVersion, binding.UID = "", ""
	return binding
}

// forbidden counts the operator's requests about this resource that the API server refused.
func (s *stage) forbidden(what string) (count int) {
	s.t.Helper()
	for request, err := range cluster.Requests(s.lab.AuditLog) {
		if err != nil {
			s.t.Fatal(err)
		}
		if request.Code == 403 && strings.Contains(request.URI, what) &&
			strings.HasSuffix(request.User, ":"+contract.OperatorServiceAccount) {
			count++
		}
	}
	return count
}

func (s *stage) nothingIsForbidden() {
	s.t.Helper()
	for request, err := range cluster.Requests(s.lab.AuditLog) {
		if err != nil {
			s.t.Fatal(err)
		}
		if request.Code == 403 && strings.HasSuffix(request.User, ":"+contract.OperatorServiceAccount) {
			s.t.Errorf("the operator lacks a right: %s %s", request.Verb, request.URI)
		}
	}
}
