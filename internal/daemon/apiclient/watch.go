package apiclient

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/internal/daemon/loop"
)

// If a watch fails, the pause before the next attempt grows from firstRetry to lastRetry. So if the watches can't be
// established, the daemon tries each of its two watches about twice per minute. watchLife is the lifetime of one watch.
// If a watch ends normally, the next one continues at the version where it ended.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
	watchLife  = 5 * time.Minute // at least this time, at most twice, as in every Kubernetes client
)

// Watch watches one named object. It is safe for concurrent use. If the Watch is nil, Get returns no object.
type Watch struct {
	client dynamic.ResourceInterface
	name   string
	clock  clock.Clock

	mu     sync.Mutex
	wake   []chan<- struct{}
	object *unstructured.Unstructured
	known  bool
	err    error
}

// NewWatch returns a Watch of the object with this name. The Watch receives changes only while Run runs.
func NewWatch(client dynamic.ResourceInterface, name string, clock clock.Clock) *Watch {
	return &Watch{client: client, name: name, clock: clock}
}

// Wake adds a channel. The watch signals the channel whenever it sees a change. The channel must have a buffer of one.
func (w *Watch) Wake(channel chan<- struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake = append(w.wake, channel)
}

// Get returns the last state of the object, which the caller must not change. If the object doesn't exist, the result
// `object` is nil. If `known` is false, the API server has not answered yet.
func (w *Watch) Get() (object *unstructured.Unstructured, known bool) {
	if w == nil {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.object, w.known
}

// Err returns the error of the last attempt to list or watch. It returns nil if the API server has answered since.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Replace stores the object `after`, which a write by the daemon returned. `before` is the object that the daemon had
// before the write. If the watch has received a newer object than `after` in the meantime, Replace changes nothing.
func (w *Watch) Replace(before, after *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.object == before || w.object != nil && older(w.object, after) {
		w.object = after
	}
}

// `saw` stores a state of the object, or nil if the object doesn't exist. If the state comes from a list (listed),
// `saw` accepts even a lower version, because a restore of etcd lowers the versions.
func (w *Watch) saw(object *unstructured.Unstructured, listed bool) {
	if object != nil {
		object = object.DeepCopy() // other goroutines may use the event's object
		// Drop the largest parts of a Node. No manifest needs them.
		object.SetManagedFields(nil)
		unstructured.RemoveNestedField(object.Object, "status", "images")
	}
	w.mu.Lock()
	if object != nil && !listed && older(object, w.object) {
		w.mu.Unlock()
		return // the event is older than the result of the daemon's own write
	}
	w.object, w.known, w.err = object, true, nil
	wake := w.wake
	w.mu.Unlock()
	for _, channel := range wake {
		loop.Signal(channel)
	}
}

// `older` reports whether the state `one` of an object has a lower version than its state `other`. Versions are
// increasing numbers. If a version isn't a number, `older` returns false.
func older(one, other *unstructured.Unstructured) bool {
	if other == nil || one.GetUID() != other.GetUID() {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(one.GetResourceVersion(), other.GetResourceVersion())
	return err == nil && order < 0
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var pause time.Duration
	loop.Run(ctx, w.clock, nil, func(ctx context.Context) time.Duration {
		began := w.clock.Now()
		err := w.listAndWatch(ctx)
		if ctx.Err() != nil {
			return 0
		}
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
		if w.clock.Since(began) > lastRetry {
			pause = 0
		}
		pause = loop.Grow(pause, 2, firstRetry, lastRetry)
		logr.FromContextOrDiscard(ctx).Info("a watch is interrupted", "object", w.name, "retry", pause, "detail",
			err.Error())
		return loop.Jitter(pause)
	})
}

func only(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// Get reads one object with a list request for its name, because daemons may list the object, but not get it. If the
// object doesn't exist, Get returns nil. The result `version` is the resource version of the list.
func Get(ctx context.Context, client dynamic.ResourceInterface, name string) (found *unstructured.Unstructured,
	version string, err error) {
	return read(ctx, client, name, "")
}

// GetCached reads one object, or returns nil if the object doesn't exist. The API server answers from its cache, so
// that hundreds of daemons cause no requests to etcd. An object with this name must never change.
func GetCached(ctx context.Context, client dynamic.ResourceInterface, name string) (*unstructured.Unstructured, error) {
	found, _, err := read(ctx, client, name, "0")
	if found == nil && err == nil {
		found, _, err = read(ctx, client, name, "")
	}
	return found, err
}

// read returns the newest version of an object. If the parameter `at` is "0", an older version from a cache is enough.
func read(ctx context.Context, client dynamic.ResourceInterface, name, at string) (found *unstructured.Unstructured,
	version string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errNoAnswer)
	defer cancel()
	list, err := client.List(ctx, metav1.ListOptions{FieldSelector: only(name), ResourceVersion: at})
	if err != nil {
		return nil, "", fmt.Errorf("reading %s: %w", name, err)
	}
	for i := range list.Items {
		if list.Items[i].GetName() == name {
			found = &list.Items[i]
		}
	}
	return found, list.GetResourceVersion(), nil
}

func (w *Watch) listAndWatch(ctx context.Context) error {
	found, version, err := Get(ctx, w.client, w.name)
	if err != nil {
		return err
	}
	w.saw(found, true)
	for ctx.Err() == nil {
		if version, err = w.watchFrom(ctx, version); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// watchFrom watches the object from a resource version. If the watch ends normally, the result is the latest version.
func (w *Watch) watchFrom(ctx context.Context, version string) (string, error) {
	life := watchLife + rand.N(watchLife)
	// The API server must answer within readTimeout. After its answer, the client sets no time limit.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opening := time.AfterFunc(readTimeout, func() { cancel(errNoAnswer) })
	events, err := w.client.Watch(ctx, metav1.ListOptions{
		FieldSelector: only(w.name), ResourceVersion: version, AllowWatchBookmarks: true,
		TimeoutSeconds: ptr.To(int64(life.Seconds())),
	})
	opening.Stop()
	if err != nil {
		return "", fmt.Errorf("watching %s: %w", w.name, err)
	}
	defer events.Stop()
	began := w.clock.Now()
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case event, open := <-events.ResultChan():
			if open {
				if version, err = w.take(event); err != nil {
					return "", err
				}
				continue
			}
		}
		break
	}
	if w.clock.Since(began) < firstRetry {
		return "", fmt.Errorf("watching %s: the watch ended at once", w.name)
	}
	return version, nil
}

func (w *Watch) take(event watch.Event) (version string, err error) {
	if event.Type == watch.Error {
		return "", fmt.Errorf("watching %s: %w", w.name, apierrors.FromObject(event.Object))
	}
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return "", fmt.Errorf("watching %s: unexpected %T", w.name, event.Object)
	}
	switch {
	case event.Type == watch.Bookmark || object.GetName() != w.name:
	case event.Type == watch.Deleted:
		w.saw(nil, false)
	default:
		w.saw(object, false)
	}
	return object.GetResourceVersion(), nil
}
