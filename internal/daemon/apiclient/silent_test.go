package apiclient_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// proxy is a proxy in front of an API server. It accepts some calls without ever answering them, and keeps the
// connection open.
type proxy struct {
	dynamic.Interface
	mu sync.Mutex
	// silent maps a verb to the number of the next calls that get no answer. asked maps a verb to the number of all
	// calls.
	silent, asked map[string]int
}

func newProxy(api dynamic.Interface, silent map[string]int) *proxy {
	return &proxy{Interface: api, silent: silent, asked: map[string]int{}}
}

// Resource implements dynamic.Interface.
func (p *proxy) Resource(kind schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return proxied{p.Interface.Resource(kind), p}
}

func (p *proxy) asks(verb string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[verb]
}

// pass returns at once if the call gets an answer. Otherwise it waits until ctx ends.
func (p *proxy) pass(ctx context.Context, verb string) error {
	p.mu.Lock()
	p.asked[verb]++
	silent := p.silent[verb] > 0
	if silent {
		p.silent[verb]--
	}
	p.mu.Unlock()
	if !silent {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

type proxied struct {
	dynamic.NamespaceableResourceInterface
	proxy *proxy
}

// Create implements dynamic.ResourceInterface.
func (p proxied) Create(ctx context.Context, object *unstructured.Unstructured, options metav1.CreateOptions,
	parts ...string) (*unstructured.Unstructured, error) {
	if err := p.proxy.pass(ctx, "create"); err != nil {
		return nil, err
	}
	return p.NamespaceableResourceInterface.Create(ctx, object, options, parts...)
}

// Get implements dynamic.ResourceInterface.
func (p proxied) Get(ctx context.Context, name string, options metav1.GetOptions,
	parts ...string) (*unstructured.Unstructured, error) {
	if err := p.proxy.pass(ctx, "get"); err != nil {
		return nil, err
	}
	return p.NamespaceableResourceInterface.Get(ctx, name, options, parts...)
}

// List implements dynamic.ResourceInterface.
func (p proxied) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if err := p.proxy.pass(ctx, "list"); err != nil {
		return nil, err
	}
	return p.NamespaceableResourceInterface.List(ctx, options)
}

// Watch implements dynamic.ResourceInterface.
func (p proxied) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := p.proxy.pass(ctx, "watch"); err != nil {
		return nil, err
	}
	return p.NamespaceableResourceInterface.Watch(ctx, options)
}

func TestARenewalThatIsNotAnsweredIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		verb  string
		asked int
	}{"when it is submitted": {"create", 2}, "when it is read": {"get", 1}} {
		t.Run(name, func(t *testing.T) {
			var before *proxy
			renewingThrough(t, clock.RealClock{}, func(api dynamic.Interface) dynamic.Interface {
				before = newProxy(api, map[string]int{c.verb: 1})
				return before
			}, taken, func(t *testing.T, _ winos.Files, _ *signer, renewed *atomic.Int32) {
				pass(life*70/100 + 20*time.Minute)
				if n := before.asks("create"); n != c.asked || renewed.Load() != 1 {
					t.Errorf("after %d requests, the certificate was renewed %d times", n, renewed.Load())
				}
			})
		})
	}
}

func TestAWatchThatIsNotAnsweredIsTriedAgain(t *testing.T) {
	for name, verb := range map[string]string{"when it reads": "list", "when it is opened": "watch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
				api := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
					map[schema.GroupVersionResource]string{nodes: "NodeList"}, nodeAt("1", "first"))
				before := newProxy(api, map[string]int{verb: 1})
				w := apiclient.NewWatch(before.Resource(nodes), "win-a", clock.RealClock{})
				done := make(chan struct{})
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					defer close(done)
					w.Run(ctx)
				}()
				pass(2 * time.Minute)
				if n := before.asks(verb); n != 2 {
					t.Errorf("there were %d calls", n)
				}
				if err := api.Tracker().Update(nodes, nodeAt("2", "second"), ""); err != nil {
					t.Error(err)
				}
				// A watch that the API server has accepted must not be closed.
				pass(4 * time.Minute)
				if object, _ := w.Get(); object == nil || object.GetAnnotations()["label"] != "second" {
					t.Errorf("the watch returned %v", object)
				}
				if n := before.asks("watch"); n > 2 {
					t.Errorf("the watch was opened %d times", n)
				}
				cancel()
				<-done
			})
		})
	}
}
