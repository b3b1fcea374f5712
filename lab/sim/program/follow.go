package program

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// followNode calls `act` with a Node after each change of the Node, until ctx ends. If `act` returns an error,
// followNode calls it again.
func followNode(ctx context.Context, server *access, name string, log logr.Logger,
	act func(ctx context.Context, node *corev1.Node) error) {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	enqueue := func(any) { queue.Add(name) }
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(server.client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
			fields.OneTermEqualSelector("metadata.name", name)),
		ObjectType: &corev1.Node{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) }},
	})
	var group sync.WaitGroup
	group.Go(func() { informer.RunWithContext(ctx) })
	group.Go(func() {
		<-ctx.Done()
		queue.ShutDown()
	})
	for {
		key, shutdown := queue.Get()
		if shutdown {
			break
		}
		var err error
		if obj, exists, _ := store.GetByKey(key); exists {
			if node, ok := obj.(*corev1.Node); ok {
				err = act(ctx, node)
			}
		}
		if err != nil && ctx.Err() == nil {
			log.Info("error syncing node", "node", key, "err", err.Error())
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
	group.Wait()
}
