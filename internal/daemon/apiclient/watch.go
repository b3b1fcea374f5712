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
)

// Pauses between attempts to watch, and the lifetime of one watch. An attempt that fails costs the
// API server one request, so a fleet that lost its API server asks at most twice a minute and node.
// A watch that ends by itself is opened again where it ended.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
	watchLife  = 5 * time.Minute // to twice as much, as for every client of Kubernetes
)

// Watch is one named object that is watched. It is safe for concurrent use; a nil one is never
// known.
type Watch struct {
	client dynamic.ResourceInterface
	name   string
	clock  clock.Clock
	// retry is the first pause after an attempt to watch that failed.
	retry time.Duration

	mu     sync.Mutex
	wake   []chan<- struct{}
	object *unstructured.Unstructured
	known  bool
}

// NewWatch makes an Object of the kind that client is for. It is watched while Run runs.
func NewWatch(client dynamic.ResourceInterface, name string, clock clock.Clock) *Watch {
	return &Watch{client: client, name: name, clock: clock, retry: firstRetry}
}

// RetrySlowly has the watch, which does not run yet, try again no sooner than it must: nobody waits for what
// it sees.
func (w *Watch) RetrySlowly() *Watch {
	w.retry = lastRetry
	return w
}

// Wake has a channel, which needs room for one signal, be signalled whenever something was seen.
func (w *Watch) Wake(channel chan<- struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake = append(w.wake, channel)
}

// Get is the object as it was last seen, not to be changed; nil when there is none, or known is
// false: none was seen yet.
func (w *Watch) Get() (object *unstructured.Unstructured, known bool) {
	if w == nil {
		return nil, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.object, w.known
}

// Replace takes the state that a write of ours led to, unless the watch has brought a newer one
// than before meanwhile.
func (w *Watch) Replace(before, after *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.object == before {
		w.object = after
	}
}

// saw takes a state of the object in. A list is always taken, whatever its version: after a restore
// of etcd, versions are lower than before.
func (w *Watch) saw(object *unstructured.Unstructured, listed bool) {
	if object != nil {
		object = object.DeepCopy() // an event's object may be somebody else's, too
		// The largest parts of a Node, for which no manifest asks.
		object.SetManagedFields(nil)
		unstructured.RemoveNestedField(object.Object, "status", "images")
	}
	w.mu.Lock()
	if object != nil && !listed && older(object, w.object) {
		w.mu.Unlock()
		return // it was under way while a write of ours came back
	}
	w.object, w.known = object, true
	wake := w.wake
	w.mu.Unlock()
	for _, channel := range wake {
		select {
		case channel <- struct{}{}:
		default: // a signal is waiting already
		}
	}
}

// older says whether one state of an object precedes another. Versions of one object are numbers
// that grow; anything else is not older.
func older(one, other *unstructured.Unstructured) bool {
	if other == nil || one.GetUID() != other.GetUID() {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(one.GetResourceVersion(), other.GetResourceVersion())
	return err == nil && order < 0
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	retry := w.retry
	for ctx.Err() == nil {
		began := w.clock.Now()
		err := w.listAndWatch(ctx)
		if ctx.Err() != nil {
			return
		}
		if w.clock.Since(began) > lastRetry {
			retry = w.retry
		}
		log.Info("a watch is interrupted", "object", w.name, "retry", retry, "detail", err.Error())
		timer := w.clock.NewTimer(Jitter(retry))
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
		retry = min(2*retry, lastRetry)
	}
}

// only lets the server send one object.
func only(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// Get reads one object, nil if there is none, and gives the version of the world in which that was
// so. Daemons may list what has a name, and get nothing.
func Get(ctx context.Context, client dynamic.ResourceInterface, name string) (found *unstructured.Unstructured,
	version string, err error) {
	return read(ctx, client, name, "")
}

// GetCached reads one object whose name stands for its content, nil if there is none. Any state in
// which it is there will do, so the API server answers from its cache if it can, without asking
// etcd which one is the newest: hundreds of daemons read the same one at the same time.
func GetCached(ctx context.Context, client dynamic.ResourceInterface, name string) (*unstructured.Unstructured, error) {
	found, _, err := read(ctx, client, name, "0")
	if found == nil && err == nil {
		found, _, err = read(ctx, client, name, "")
	}
	return found, err
}

// read reads one object, as it is now or, with version 0, at any time that the API server has in
// its cache.
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

// listAndWatch reads the object and follows it until something goes wrong.
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

// watchFrom follows the object from a version of the world, and gives the version that it came to
// when the watch ended by itself.
func (w *Watch) watchFrom(ctx context.Context, version string) (string, error) {
	life := watchLife + rand.N(watchLife)
	// The server answers at once, and then has its time.
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

// take takes one event in, and gives its version of the world.
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

// Jitter spreads a pause by a fifth to either side.
func Jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
