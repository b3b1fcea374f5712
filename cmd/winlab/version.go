package main

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/scene"
)

// versions tracks the version of each node and when the node reported it.
type versions struct {
	stop func()

	mu      sync.Mutex
	of      map[string]held
	changed chan struct{}
}

// held is the version of a node. `since` is when the version was seen for the first time.
type held struct {
	version string
	since   time.Time
}

// watchVersions watches the versions of nodes until stop is called. It returns when it has seen every node once.
func watchVersions(ctx context.Context, s *scene.Scene) (*versions, error) {
	clients, err := kubernetes.NewForConfig(s.Cluster.Admin())
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	v := &versions{of: map[string]held{}, changed: make(chan struct{}, 1)}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = corev1.LabelOSStable + "=windows"
		}))
	saw := func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			v.saw(node)
		}
	}
	handlers := cache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, object any) { saw(object) }}
	registration, err := factory.Core().V1().Nodes().Informer().AddEventHandler(handlers)
	if err != nil {
		return nil, fmt.Errorf("watching nodes: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	v.stop = func() {
		cancel()
		factory.Shutdown()
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		v.stop()
		return nil, fmt.Errorf("watching nodes: %w", context.Cause(ctx))
	}
	return v, nil
}

func (v *versions) saw(node *corev1.Node) {
	v.mu.Lock()
	defer v.mu.Unlock()
	version := node.Annotations[contract.RevisionAnnotation]
	if version == v.of[node.Name].version {
		return
	}
	v.of[node.Name] = held{version: version, since: time.Now()}
	select {
	case v.changed <- struct{}{}:
	default: // the receiver has yet to read an earlier signal
	}
}

func (v *versions) all() map[string]held {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.of)
}

// changeTimeout is the time limit for one change. A change takes much less time, but the machine may be busy.
const changeTimeout = 10 * time.Minute

// follow waits until all nodes have the same version, and no node had this version in the map `before`. It returns this
// version, and for each node the time from `began` until the node had this version.
func (v *versions) follow(ctx context.Context, before map[string]held, began time.Time) (took []time.Duration,
	version string, err error) {
	deadline := time.NewTimer(changeTimeout)
	defer deadline.Stop()
	for {
		if took, version = arrived(v.all(), before, began); took != nil {
			return took, version, nil
		}
		select {
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-deadline.C:
			return nil, "", fmt.Errorf("not all nodes followed within %s: %v", changeTimeout, v.all())
		case <-v.changed:
		}
	}
}

// arrived returns the new version and the times if all nodes have the same new version. Otherwise, it returns nil.
func arrived(now, before map[string]held, began time.Time) (took []time.Duration, version string) {
	for name, h := range now {
		if version == "" {
			version = h.version
		}
		if h.version == "" || h.version != version || h.version == before[name].version {
			return nil, ""
		}
		took = append(took, h.since.Sub(began))
	}
	return took, version
}
