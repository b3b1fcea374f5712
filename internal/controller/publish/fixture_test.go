package publish

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/scheme"
)

const pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

// factsStub is a cluster.Source that returns the facts and errors that a test sets.
type factsStub struct {
	mu    sync.Mutex
	facts blueprint.Facts
	err   error
}

func (s *factsStub) Facts(context.Context, v1alpha1.WindowsMachineConfigSpec) (blueprint.Facts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts, s.err
}

func (s *factsStub) Inputs() []cluster.Input { return nil }

func (s *factsStub) Remember(context.Context) (map[string]json.RawMessage, error) { return nil, nil }

func (s *factsStub) answer(change func(*factsStub)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func goodFacts() blueprint.Facts {
	return blueprint.Facts{
		Platform: contract.PlatformNone, APIServer: "https://api-int.example.com:6443", KubernetesVersion: "v1.36.3",
		Network: blueprint.Network{NetworkType: blueprint.NetworkOVNKubernetes,
			ServiceNetwork: netip.MustParsePrefix("172.30.0.0/16"), HybridOverlay: true},
		KubeletCA: pem, BootstrapCA: pem,
	}
}

// smallPayload returns a payload with only the files that every node needs.
func smallPayload() payload.Manifest {
	var m payload.Manifest
	for _, path := range []string{
		contract.PathKubelet, contract.PathKubeLogRunner, contract.PathContainerd, contract.PathContainerdShim,
		contract.PathDaemon,
	} {
		name := path[strings.LastIndex(path, `\`)+1:]
		m.Files = append(m.Files, payload.File{Name: name, Version: "v1.36.3", Size: 10,
			Digest: contract.Digest([]byte(name)), Path: path})
	}
	return m
}

// world is a fake cluster with the controller.
type world struct {
	client    client.Client
	writes    *[]string
	facts     *factsStub
	clock     *time.Time
	publisher *publisher
	events    *events.FakeRecorder
	// refused contains errors for the creation and the update of objects, by the object's name.
	refused map[string]error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := scheme.New(t, cluster.AddToScheme)
	writes, refused := &[]string{}, map[string]error{}
	note := func(verb string, o client.Object) {
		_, kind, _ := strings.Cut(fmt.Sprintf("%T", o), ".")
		*writes = append(*writes, verb+" "+kind+" "+o.GetName())
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1alpha1.WindowsInstance{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				note("create", o)
				if err := refused[o.GetName()]; err != nil {
					return err
				}
				return c.Create(ctx, o, opts...)
			},
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				note("update", o)
				if err := refused[o.GetName()]; err != nil {
					return err
				}
				return c.Update(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				note("patch", o)
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				note("delete", o)
				return c.Delete(ctx, o, opts...)
			},
		}).Build()
	m := newMeters(prometheus.NewRegistry())
	clock := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	now := func() time.Time { return clock }
	facts := &factsStub{facts: goodFacts()}
	fakeEvents := events.NewFakeRecorder(100)
	tell := recorder{events: fakeEvents}
	source := &Source{}
	w := &world{client: c, writes: writes, facts: facts, clock: &clock, events: fakeEvents, refused: refused}
	w.publisher = &publisher{
		Options: Options{
			Namespace: contract.OperatorNamespace, Facts: facts, Payload: smallPayload(), Logging: blueprint.DefaultLogging(), OperatorVersion: "0.1.0", Grace: DefaultGrace, Now: now,
		},
		client: c, source: source, tell: tell, meters: m,
	}
	return w
}

func (w *world) publish(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := w.publisher.Reconcile(t.Context(), ctrl.Request{})
	if err != nil {
		t.Fatalf("publishing: %v", err)
	}
	return result
}

// sweep deletes unused revisions. It returns the time until the next sweep.
func (w *world) sweep(t *testing.T) time.Duration {
	t.Helper()
	next, err := w.publisher.sweep(t.Context())
	if err != nil {
		t.Fatalf("sweeping: %v", err)
	}
	return next
}

// current returns the current revision of the source. The test fails if there is none.
func (w *world) current(t *testing.T) blueprint.Desired {
	t.Helper()
	desired, _, err := w.publisher.source.Current(t.Context())
	if err != nil {
		t.Fatalf("Current: %v", err)
	}
	return desired
}

// manifests returns the ConfigMaps by name.
func (w *world) manifests(t *testing.T) map[string]corev1.ConfigMap {
	t.Helper()
	var list corev1.ConfigMapList
	if err := w.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]corev1.ConfigMap{}
	for _, c := range list.Items {
		all[c.Name] = c
	}
	return all
}

func configMap(name string, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: name,
		Labels: map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount}}}
	if change != nil {
		change(c)
	}
	return c
}
