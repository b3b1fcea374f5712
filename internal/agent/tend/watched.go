package tend

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

var (
	nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// watched is one named object that is watched.
type watched struct {
	wake chan<- struct{}

	mu     sync.Mutex
	object *unstructured.Unstructured
	synced func() bool
}

func newWatched(wake chan<- struct{}) *watched {
	return &watched{wake: wake, synced: func() bool { return false }}
}

// get is the object as it was last seen, not to be changed; nil when there is none, or none was seen yet.
func (w *watched) get() *unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.object
}

// known says whether the API server has answered at least once.
func (w *watched) known() bool {
	w.mu.Lock()
	synced := w.synced
	w.mu.Unlock()
	return synced()
}

// replace takes the state that a write of ours led to, unless the watch has brought a newer one than before meanwhile.
func (w *watched) replace(before, after *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.object == before {
		w.object = after
	}
}

func (w *watched) saw(object *unstructured.Unstructured) {
	w.mu.Lock()
	w.object = object
	w.mu.Unlock()
	w.signal()
}

func (w *watched) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // a signal is waiting already
	}
}

// run watches the object until ctx ends. The server sends this one object only.
func (w *watched) run(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource, namespace, name string) {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, kind, namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}).Informer()
	// The largest parts of a Node that nothing here asks for.
	_ = informer.SetTransform(func(object any) (any, error) { // it fails only when the informer runs already
		if u, ok := object.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
			unstructured.RemoveNestedField(u.Object, "status", "images")
		}
		return object, nil
	})
	take := func(object any) {
		if u, ok := object.(*unstructured.Unstructured); ok && u.GetName() == name && ctx.Err() == nil {
			w.saw(u)
		}
	}
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, object any) { take(object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if u, ok := object.(*unstructured.Unstructured); ok && u.GetName() == name && ctx.Err() == nil {
				w.saw(nil)
			}
		},
	})
	if err != nil {
		return // only after the informer was stopped
	}
	w.mu.Lock()
	w.synced = handler.HasSynced
	w.mu.Unlock()
	var first sync.WaitGroup
	first.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			w.signal()
		}
	})
	informer.RunWithContext(ctx)
	first.Wait()
}
