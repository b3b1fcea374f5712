package instance_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/instance/disrupt"
	"github.com/windows-nodes/wmco/internal/instance/health"
	"github.com/windows-nodes/wmco/internal/instance/join"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/instance/remove"
	"github.com/windows-nodes/wmco/internal/observed"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/scheme"
	"github.com/windows-nodes/wmco/test/hosttest"
)

const version = "1.0.0-aaaaaaaaaa"

// world has all parts that a join or a removal uses, each of them simulated.
type world struct {
	join.Join
	health   health.Health
	upgrade  disrupt.Disrupt
	remove   remove.Remove
	machine  *hosttest.Machine
	client   client.WithWatch
	pods     *kubefake.Clientset
	clock    time.Time
	desired  blueprint.Desired
	server   string // the API server's URL, if not the default
	platform contract.Platform
	network  string // the type of the network
	proxy    blueprint.Proxy
	lacks    error // the error that Current and the others return
	noKey    error
	revoked  int
	noRevoke error
	noToken  error
	// broken has errors for writes and reads of the API server, by verb.
	mu     sync.Mutex
	broken map[string]error
}

func (w *world) Current(context.Context) (blueprint.Desired, blueprint.Facts, error) {
	network := blueprint.Network{NetworkType: w.network, VXLANPort: 9898, PodNetworks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		ServiceNetworks: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}}
	return w.desired, blueprint.Facts{Platform: w.platform, APIServer: cmp.Or(w.server, "https://api:6443"),
		BootstrapCA: "ca", KubeletCA: "kubelet-ca", Proxy: w.proxy, Network: network}, w.lacks
}

func (w *world) PrivateKey(context.Context) (credential.Key, error) {
	return credential.Key{PEM: []byte("pem"), Hash: "hash"}, w.noKey
}

func (w *world) BootstrapToken(context.Context, *v1alpha1.WindowsInstance) (credential.Token, error) {
	return credential.Token{Text: "token", ID: "JTI=token"}, w.noToken
}

func (w *world) Revoke(context.Context, *v1alpha1.WindowsInstance) error {
	w.revoked++
	return w.noRevoke
}

func (w *world) Manifest() payload.Manifest {
	return payload.Manifest{Files: []payload.File{{Name: contract.ServiceDaemon + ".exe", Digest: digest("daemon"),
		Size: 6}}}
}

func (w *world) Select(wanted []contract.Blob) ([]payload.Blob, error) {
	var selected []payload.Blob
	for _, b := range wanted {
		content := map[string]string{digest("daemon"): "daemon", digest("kubelet"): "kubelet"}[b.Digest]
		if content == "" {
			return nil, contract.NewProblem(contract.ReasonPayloadMissing, "no blob %s", b.Digest)
		}
		selected = append(selected, payload.Blob{
			Blob: contract.Blob{Digest: b.Digest, Size: int64(len(content))},
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewBufferString(content)), nil },
		})
	}
	return selected, nil
}

func digest(content string) string { return contract.Digest([]byte(content)) }

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := scheme.New(t)
	w := &world{
		machine: hosttest.New("win-a"), clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), broken: map[string]error{},
		desired: blueprint.Desired{Revision: version},
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(w.faults()).Build()
	w.pods = kubefake.NewClientset()
	parts, err := journey.New(journey.Options{
		Client: w.client, Live: w.client, Pods: w.pods, Dialer: w.machine, Payload: w, Desired: w, Keys: w, Tokens: w,
		Slots: journey.NewSlots(1, func(types.NamespacedName) {}), Claims: journey.NewClaims(),
		Observed: observed.New(func() time.Time { return w.clock }),
		Now:      func() time.Time { return w.clock }, Namespace: "ns",
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Join, w.health, w.upgrade, w.remove = join.Join{Parts: parts}, health.Health{Parts: parts},
		disrupt.Disrupt{Parts: parts}, remove.Remove{Parts: parts}
	for _, o := range objects {
		if n, ok := o.(*corev1.Node); ok {
			w.sees(n)
		}
	}
	return w
}

// sees simulates an operator that has seen a Node in its current state for a minute.
func (w *world) sees(n *corev1.Node) {
	w.clock = w.clock.Add(-policy.Witnessed)
	w.Observed.NotReady(n)
	w.clock = w.clock.Add(policy.Witnessed)
}

// faults lets the API server fail.
func (w *world) faults() interceptor.Funcs {
	fault := func(verb string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.broken[verb]
	}
	return interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if err := fault("get"); err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if err := fault("create"); err != nil {
				return err
			}
			return c.Create(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch,
			options ...client.PatchOption) error {
			if err := fault("patch"); err != nil {
				return err
			}
			if o.GetLabels()[corev1.LabelOSStable] == string(corev1.Linux) {
				return apierrors.NewForbidden(corev1.Resource("nodes"), o.GetName(), errors.New("only Windows"))
			}
			if data, err := patch.Data(o); err == nil && bytes.Contains(data, []byte("resourceVersion")) {
				if err = fault("patch a version"); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, patch, options...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
			if err := fault("delete"); err != nil {
				return err
			}
			// The fake client ignores preconditions.
			asked, now := (&client.DeleteOptions{}).ApplyOptions(options), &corev1.Node{}
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err == nil && asked.Preconditions != nil &&
				*asked.Preconditions.UID != now.UID {
				return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, o.GetName(),
					errors.New("the object has another UID"))
			}
			return c.Delete(ctx, o, options...)
		},
	}
}

// join runs the phases up to and including last, and returns the outcome of the last phase that ran.
func (w *world) join(t *testing.T, i *v1alpha1.WindowsInstance, session *journey.Session,
	last v1alpha1.Phase) journey.Outcome {
	t.Helper()
	outcome := journey.Done()
	phases := w.Phases()
	for n := w.Resume(t.Context(), i, session); n < len(phases); n++ {
		if i.Status.Phase != phases[n].Name {
			i.Status.Phase = phases[n].Name
			i.Status.Phases = append(i.Status.Phases, v1alpha1.PhaseTime{Phase: phases[n].Name,
				StartTime: metav1.NewMicroTime(w.clock)})
		}
		if outcome = phases[n].Run(t.Context(), i, session); !outcome.IsDone() {
			return outcome
		}
		if outcome.Then == journey.Save || outcome.Then == journey.TakeSlot {
			session.IsGranted = session.IsGranted || outcome.Then == journey.TakeSlot
			n--
			continue
		}
		if phases[n].Name == last {
			return outcome
		}
	}
	return outcome
}

// newInstance returns an instance that no operator has seen.
func newInstance() *v1alpha1.WindowsInstance {
	i := instance()
	i.UID, i.Status = "uid", v1alpha1.WindowsInstanceStatus{}
	return i
}

// joinedNode returns a Ready Node of the instance at a revision.
func joinedNode(at string) *corev1.Node {
	n := node()
	n.UID = "node-uid"
	n.Annotations = map[string]string{contract.InstanceAnnotation: "ns/10.0.0.1", contract.RevisionAnnotation: at,
		contract.DesiredRevisionAnnotation: at}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady"}}
	return n
}

// check runs the health check of a host with its cached Node.
func (w *world) check(t *testing.T, i *v1alpha1.WindowsInstance) (health.Finding, error) {
	t.Helper()
	node, err := w.health.Nodes.Get(t.Context(), i.Status.NodeName)
	if err != nil {
		return health.Finding{}, err
	}
	return w.health.Check(t.Context(), i, node)
}

func (w *world) getNode(t *testing.T) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := w.client.Get(t.Context(), types.NamespacedName{Name: "win-a"}, n); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return n
}

// setNode changes the Node, as kubelet or the daemon would.
func (w *world) setNode(t *testing.T, change func(*corev1.Node)) {
	t.Helper()
	n := w.getNode(t)
	change(n)
	status := n.Status.DeepCopy()
	if err := w.client.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	n.Status = *status
	if err := w.client.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w.sees(n)
}

// sign signs every certificate request, or denies it.
func (w *world) sign(t *testing.T, denied bool) {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := w.client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for n := range list.Items {
		csr := &list.Items[n]
		csr.Status.Certificate = []byte("certificate")
		if denied {
			csr.Status.Certificate = nil
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: "NotOurs"}}
		}
		if err := w.client.Status().Update(t.Context(), csr); err != nil {
			t.Fatal(err)
		}
	}
}

// want checks an outcome and its reason. The outcome is "done", "waits" or "fails".
func want(t *testing.T, got journey.Outcome, verdict string, reason contract.Reason) {
	t.Helper()
	is := "done"
	switch {
	case got.IsWaiting():
		is = "waits"
	case got.IsFailed():
		is = "fails"
	}
	have := contract.Reason("")
	if got.Problem != nil {
		have = got.Problem.Reason
	}
	if is != verdict || have != reason {
		t.Fatalf("the phase %s with %q (%v), want %s with %q", is, have, got.Problem, verdict, reason)
	}
}
