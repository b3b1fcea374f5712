package apiclient_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
)

func nodeAt(version, label string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "win-a", "uid": "1", "resourceVersion": version,
			"annotations": map[string]any{"label": label}},
	}}
}

// After a restore of etcd, resource versions continue from a lower number.
func TestAListIsTakenThoughItsVersionIsLowerThanTheLastOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
		api := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{nodes: "NodeList"})
		present := nodeAt("9000", "before the restore")
		api.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "NodeList"}}
			list.SetResourceVersion(present.GetResourceVersion())
			list.Items = append(list.Items, *present.DeepCopy())
			return true, list, nil
		})
		var events *watch.FakeWatcher
		api.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
			events = watch.NewFake()
			return true, events, nil
		})
		w := apiclient.NewWatch(api.Resource(nodes), "win-a", clock.RealClock{})
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		expect := func(want string) {
			t.Helper()
			object, _ := w.Get()
			if object == nil || object.GetAnnotations()["label"] != want {
				t.Errorf("want %q, got %v", want, object)
			}
		}
		pass(time.Second)
		expect("before the restore")
		events.Modify(nodeAt("9001", "just before the restore"))
		pass(time.Second)
		expect("just before the restore")
		present = nodeAt("17", "after the restore")
		events.Stop()
		pass(2 * time.Minute)
		events.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
		pass(2 * time.Minute)
		expect("after the restore")
		events.Modify(nodeAt("18", "changed after the restore"))
		pass(time.Second)
		expect("changed after the restore")
		cancel()
		<-done
	})
}

// Other clients write the Node at the same time as the daemon. The watch may deliver their change before the daemon's
// own. The daemon must not repeat its write because of that.
func TestTheResultOfAWriteReplacesAnOlderEventAndNoNewerOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
		api := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{nodes: "NodeList"}, nodeAt("10", "at first"))
		events := watch.NewFake()
		api.PrependWatchReactor("nodes", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, events, nil
		})
		w := apiclient.NewWatch(api.Resource(nodes), "win-a", clock.RealClock{})
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		pass(time.Second)
		for _, step := range []struct{ event, written, want string }{{"11", "12", "12"}, {"14", "13", "14"}} {
			before, _ := w.Get()
			events.Modify(nodeAt(step.event, "by another"))
			pass(time.Second)
			w.Replace(before, nodeAt(step.written, "by the daemon"))
			if object, _ := w.Get(); object.GetResourceVersion() != step.want {
				t.Errorf("after event %s and write %s, the watch has version %s", step.event, step.written,
					object.GetResourceVersion())
			}
		}
		cancel()
		<-done
	})
}
