package instance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/scheme"
	"github.com/windows-nodes/wmco/test/hosttest"
)

const (
	namespace = "ns"
	first     = "1.0.0-aaaaaaaaaa"
	second    = "1.1.0-bbbbbbbbbb"
)

// told is an event that the operator sent.
type told struct {
	regarding, related runtime.Object
	reason, note       string
}

// rig is a Reconciler in a simulated environment. Tests control the hosts, the API server with its cache, and the
// clock.
type rig struct {
	*Reconciler
	api      client.WithWatch
	pods     *kubefake.Clientset
	machines map[string]*hosttest.Machine // the hosts, by address
	clock    time.Time
	version  string
	manifest contract.Manifest
	kubelet  string
	noKey    error
	key      credential.Key
	events   []told
	// statusWrites counts the writes of instances' statuses. broken contains the errors that operations return: writes
	// ("status", "finalizer", "delete" of a Node, "revoke"), reads of the settings ("settings"), and reads of the
	// revision to join at ("desired").
	statusWrites int
	// nodePatches counts patches of Nodes.
	nodePatches int
	broken      map[string]error
	// stale is an instance, and staleNode is a Node, as a cache that lags behind contains them. unseen is the name of a
	// Node that the cache does not contain. liveNodes counts reads of Nodes that bypass the cache.
	stale     *v1alpha1.WindowsInstance
	staleNode *corev1.Node
	unseen    string
	liveNodes int
	// looked is called after each read of a Node that bypasses the cache.
	looked func()
	// saving is called before a status is written. slow is called instead of dialling a host. If quiet is set, events
	// are not recorded.
	saving  func()
	written *v1alpha1.WindowsInstanceStatus
	slow    func(ctx context.Context) error
	// reaches reports whether an address is dialled although slow is set. nil means that no address is.
	reaches func(address string) bool
	// sending is called before payload is sent. The first blob is the daemon's program.
	sending func(blobs []contract.Blob)
	quiet   bool
	// kind is the metadata of the CRD of WindowsInstances.
	kind metav1.ObjectMeta
	// spent is the id of the bootstrap token with which no more certificates are approved.
	spent string
	mu    sync.Mutex
}

func (r *rig) Current(context.Context) (blueprint.Desired, blueprint.Facts, error) {
	if err := r.broken["desired"]; err != nil {
		return blueprint.Desired{}, blueprint.Facts{}, err
	}
	return blueprint.Desired{Revision: r.version, Manifest: r.manifest, KubeletVersion: r.kubelet},
		blueprint.Facts{APIServer: "https://api:6443", Network: blueprint.Network{
			PodNetworks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}}, nil
}
func (r *rig) PrivateKey(context.Context) (credential.Key, error) {
	return r.key, r.noKey
}
func (r *rig) BootstrapToken(context.Context, *v1alpha1.WindowsInstance) (credential.Token, error) {
	return credential.Token{Text: "token", ID: "JTI=token"}, nil
}

func (r *rig) Revoke(context.Context, *v1alpha1.WindowsInstance) error { return r.broken["revoke"] }
func (r *rig) Manifest() payload.Manifest {
	return payload.Manifest{Files: []payload.File{{Name: contract.ServiceDaemon + ".exe",
		Digest: strings.Repeat("d", 64), Size: 6}}}
}
func (r *rig) Select(wanted []contract.Blob) (selected []payload.Blob, err error) {
	if r.sending != nil {
		r.sending(wanted)
	}
	for _, b := range wanted {
		selected = append(selected, payload.Blob{Blob: b,
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewBufferString("daemon")), nil }})
	}
	return selected, nil
}
func (r *rig) Dial(ctx context.Context, target host.Target) (host.Conn, error) {
	if r.slow != nil && (r.reaches == nil || !r.reaches(target.Address)) {
		return nil, r.slow(ctx)
	}
	return r.machines[target.Address].Dial(ctx, target)
}
func (r *rig) Eventf(regarding, related runtime.Object, _, reason, _, note string, args ...any) {
	if r.quiet {
		return
	}
	r.events = append(r.events, told{regarding, related, reason, fmt.Sprintf(note, args...)})
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme := scheme.New(t)
	r := &rig{machines: map[string]*hosttest.Machine{}, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		version: first, broken: map[string]error{}}
	r.key = credential.Key{PEM: []byte("pem"), Hash: "hash"}
	for n, name := range []string{"win-a", "win-b", "win-c"} {
		address := fmt.Sprintf("10.0.0.%d", n+1)
		r.machines[address] = hosttest.New(name)
		r.machines[address].Change(func(f *contract.HostFacts) { f.NodeIP = address })
	}
	// This tracker doesn't maintain managed fields. If it did, each write would list all types of the scheme.
	tracker := kubetesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.WindowsInstance{}, &v1alpha1.WindowsMachineConfig{},
			&corev1.Node{}).WithInterceptorFuncs(r.faults()).Build()
	r.pods = kubefake.NewClientset()
	// The fake client can't filter pods by node, so this reactor does it.
	r.pods.PrependReactor("list", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
		list, ok := a.(kubetesting.ListAction)
		if !ok {
			return false, nil, nil
		}
		all, err := r.pods.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"),
			corev1.SchemeGroupVersion.WithKind("Pod"), "")
		pods, ok := all.(*corev1.PodList)
		if err != nil || !ok {
			return true, nil, err
		}
		pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
			return !list.GetListRestrictions().Fields.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName})
		})
		return true, pods, nil
	})
	r.restart(t)
	return r
}

// Reconcile reconciles an instance and the rollout. Then it reconciles the instances that the rollout has woken.
func (r *rig) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	for again := 0; ; again++ {
		result, err := r.Reconciler.Reconcile(ctx, request)
		if err != nil || again == 3 {
			return result, err
		}
		if _, err = r.rollout.Reconcile(ctx, ctrl.Request{}); errors.Is(err, errKilled) {
			return result, err
		}
		isAnswered := false
		for len(r.rollout.Answers()) > 0 {
			answer := <-r.rollout.Answers()
			if answer.Object.GetName() == request.Name {
				isAnswered = true
				continue
			}
			select {
			case r.woken <- answer:
			default: // full: a test that runs schedules reconciles all hosts anyway
			}
		}
		if !isAnswered {
			return result, nil
		}
	}
}

// restart simulates a new operator process.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	r.restartWith(t, pastCache{r.api, r})
}

// pastCache is a reader that bypasses the cache.
type pastCache struct {
	client.Reader
	rig *rig
}

func (p pastCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	stale, staleNode, unseen := p.rig.stale, p.rig.staleNode, p.rig.unseen
	if _, ok := o.(*corev1.Node); ok && p.rig.looked != nil {
		defer p.rig.looked()
	}
	p.rig.stale, p.rig.staleNode, p.rig.unseen = nil, nil, ""
	defer func() { p.rig.stale, p.rig.staleNode, p.rig.unseen = stale, staleNode, unseen }()
	if _, ok := o.(*corev1.Node); ok {
		p.rig.liveNodes++
	}
	return p.Reader.Get(ctx, key, o, options...)
}

// restartWith simulates a new operator process that uses a different live client.
func (r *rig) restartWith(t *testing.T, live client.Reader) {
	t.Helper()
	meters, err := newMeters(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return r.clock }
	r.Reconciler = &Reconciler{
		client: r.api, recorder: recorder{r.api, r}, meters: meters, now: now, jitter: func() float64 { return 0 },
		trials: journey.NewSlots(trials, func(key types.NamespacedName) { r.wake(key) }), notes: semaphore.NewWeighted(noters),
		memories: map[types.NamespacedName]*memory{}, woken: make(chan event.GenericEvent, 100),
	}
	if r.rollout, err = rollout.New(rollout.Options{Cached: r.api, Live: live, Writer: r.api,
		Namespace: namespace, Now: now}); err != nil {
		t.Fatal(err)
	}
	r.parts, err = journey.New(journey.Options{
		Client: r.api, Live: live, Pods: r.pods, Dialer: r, Payload: r, Desired: r, Keys: r, Tokens: r,
		Slots: journey.NewSlots(defaultJoins, r.wake), Claims: journey.NewClaims(), Now: now, Namespace: namespace,
		Bounds: r.bounds, Observed: r.rollout.Observed, IsTokenUsed: func(id string) bool { return id == r.spent },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.journeys = newJourneys(r.parts)
	if err = r.recall(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) faults() interceptor.Funcs {
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.WindowsMachineConfig); ok && r.broken["settings"] != nil {
				return r.broken["settings"]
			}
			if crd, ok := o.(*metav1.PartialObjectMetadata); ok && r.broken["kind"] == nil {
				r.kind.DeepCopyInto(&crd.ObjectMeta)
				return nil
			} else if ok {
				return r.broken["kind"]
			}
			if i, ok := o.(*v1alpha1.WindowsInstance); ok && r.stale != nil && r.stale.Name == key.Name {
				r.stale.DeepCopyInto(i)
				return nil
			}
			if n, ok := o.(*corev1.Node); ok && r.staleNode != nil && r.staleNode.Name == key.Name {
				r.staleNode.DeepCopyInto(n)
				return nil
			}
			if _, ok := o.(*corev1.Node); ok && r.unseen == key.Name {
				return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
			}
			return c.Get(ctx, key, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if _, ok := o.(*v1alpha1.WindowsInstance); ok && r.broken["finalizer"] != nil {
				return r.broken["finalizer"]
			}
			if _, ok := o.(*corev1.Node); ok {
				r.mu.Lock()
				r.nodePatches++
				r.mu.Unlock()
				if r.broken["node"] != nil {
					return r.broken["node"]
				}
				if err := r.broken["approval"]; err != nil && o.GetAnnotations()[contract.RebootApprovedAnnotation] != "" {
					return err
				}
			}
			return c.Patch(ctx, o, patch, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if _, ok := o.(*corev1.Node); ok && r.broken["delete"] != nil {
				return r.broken["delete"]
			}
			return c.Delete(ctx, o, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch,
			options ...client.SubResourcePatchOption) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if i, ok := o.(*v1alpha1.WindowsInstance); ok {
				r.mu.Lock()
				r.written = i.Status.DeepCopy()
				r.mu.Unlock()
			}
			if r.saving != nil {
				r.saving()
			}
			if r.broken["status"] != nil {
				return r.broken["status"]
			}
			r.mu.Lock()
			r.statusWrites++
			r.mu.Unlock()
			return c.Status().Patch(ctx, o, patch, options...)
		},
	}
}

// listed returns the list of hosts, and an instance that was created from it.
func listed(n int) []client.Object {
	address := fmt.Sprintf("10.0.0.%d", n)
	return []client.Object{&v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: address, UID: types.UID("uid-" + address),
			Generation: 1},
		Spec: v1alpha1.WindowsInstanceSpec{
			Address: address, Username: "a", Port: 22,
			Source: &v1alpha1.Source{Kind: v1alpha1.SourceConfigMap, Name: address},
		},
	}}
}

func key(n int) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("10.0.0.%d", n)}
}

func (r *rig) machine(n int) *hosttest.Machine { return r.machines[key(n).Name] }

// reconcile reconciles a host once. The test fails if this returns an error.
func (r *rig) reconcile(t *testing.T, n int) ctrl.Result {
	t.Helper()
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(n)})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// get reads the instance from the API server.
func (r *rig) get(t *testing.T, n int) *v1alpha1.WindowsInstance {
	t.Helper()
	i := &v1alpha1.WindowsInstance{}
	stale := r.stale
	r.stale = nil
	defer func() { r.stale = stale }()
	if err := r.api.Get(t.Context(), key(n), i); err != nil {
		t.Fatal(err)
	}
	return i
}

// edit changes an instance as a user does: the change increases the generation.
func (r *rig) edit(t *testing.T, n int, change func(*v1alpha1.WindowsInstance)) {
	t.Helper()
	i := r.get(t, n)
	change(i)
	i.Generation++
	if err := r.api.Update(t.Context(), i); err != nil {
		t.Fatal(err)
	}
}

// remove deletes an instance as a user does.
func (r *rig) remove(t *testing.T, n int) {
	t.Helper()
	if err := r.api.Delete(t.Context(), r.get(t, n)); err != nil {
		t.Fatal(err)
	}
}

// exists reports whether the instance still exists.
func (r *rig) exists(t *testing.T, n int) bool {
	t.Helper()
	err := r.api.Get(t.Context(), key(n), &v1alpha1.WindowsInstance{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil
}

// register simulates a kubelet that registers its Node. The Node is Ready, and contains the revision that the daemon
// reports.
func (r *rig) register(t *testing.T, n int, version string) {
	t.Helper()
	name := r.machine(n).Facts().Hostname
	node := &corev1.Node{}
	if err := r.api.Get(t.Context(), types.NamespacedName{Name: name}, node); err != nil {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uuid.NewUUID(),
			Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
		if err = r.api.Create(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if version != "" {
		node.Annotations[contract.RevisionAnnotation] = version
		if err := r.api.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: key(n).Name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady"}}
	if err := r.api.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// sign approves and signs every certificate request.
func (r *rig) sign(t *testing.T) {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := r.api.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		list.Items[i].Status.Certificate = []byte("certificate")
		if err := r.api.Status().Update(t.Context(), &list.Items[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// join reconciles a host until it has joined.
func (r *rig) join(t *testing.T, n int) {
	t.Helper()
	r.reconcile(t, n)
	r.register(t, n, "")
	r.reconcile(t, n)
	r.sign(t)
	r.reconcile(t, n)
	r.register(t, n, r.version)
	r.reconcile(t, n)
	if i := r.get(t, n); i.Status.Phase != v1alpha1.PhaseReady ||
		!meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady) {
		t.Fatalf("the host did not join: %s %s %s", i.Status.Phase, i.Status.Reason(), i.Status.Message())
	}
}

// publish stores a revision's manifest where the operator and the daemons read it.
func (r *rig) publish(t *testing.T, version string, manifest contract.Manifest) {
	t.Helper()
	data, err := manifest.Data()
	if err != nil {
		t.Fatal(err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: contract.ServicesConfigMapPrefix + version}, Data: data}
	if err = r.api.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// condition returns the status and the reason of a condition, as "Status Reason".
func condition(i *v1alpha1.WindowsInstance, kind string) string {
	c := meta.FindStatusCondition(i.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// unreachable is the error for a dead host.
func unreachable() error { return contract.NewProblem(contract.ReasonUnreachable, "nothing answers") }

// hosttestUnreachable is called instead of dialling a host that does not respond.
func hosttestUnreachable(context.Context) error { return unreachable() }

// fixOf returns the fix in the message of an instance. codeOf returns the code of the instance's reason.
func fixOf(i *v1alpha1.WindowsInstance) string {
	_, fix := contract.Reason(i.Status.Reason()).Explained(i.Status.Message())
	return fix
}

func codeOf(i *v1alpha1.WindowsInstance) string { return contract.Reason(i.Status.Reason()).Code() }
