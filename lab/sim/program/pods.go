package program

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// podLoop simulates the containers of the pods on this Node. It uses one watch, one queue and one worker.
//
//	bound ─▶ Running (as soon as the Node is ready) ─▶ asked to end ─▶ grace period over ─▶ deleted
type podLoop struct {
	*kubelet
	ready atomic.Bool
	queue workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex
	store    cache.Store
	stopping map[types.UID]time.Time
	networks addresses
}

func newPodLoop(k *kubelet) *podLoop {
	return &podLoop{
		kubelet: k, stopping: map[types.UID]time.Time{}, networks: addresses{taken: map[types.UID]string{}},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, 10*time.Second)),
	}
}

// setReady sets whether pods can start. If ready changes to true, it starts the waiting pods.
func (l *podLoop) setReady(ready bool) {
	if l.ready.Swap(ready) == ready || !ready {
		return
	}
	l.mu.Lock()
	store := l.store
	l.mu.Unlock()
	if store == nil {
		return
	}
	for _, key := range store.ListKeys() {
		l.queue.Add(key)
	}
}

// run watches and simulates the pods until ctx ends.
func (l *podLoop) run(ctx context.Context) error {
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			l.queue.Add(key)
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(l.server.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
			fields.OneTermEqualSelector("spec.nodeName", l.node)),
		ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: enqueue, DeleteFunc: enqueue,
			UpdateFunc: func(_, obj any) { enqueue(obj) },
		},
	})
	l.mu.Lock()
	l.store = store
	l.mu.Unlock()
	var group sync.WaitGroup
	group.Go(func() { informer.RunWithContext(ctx) })
	group.Go(func() {
		<-ctx.Done()
		l.queue.ShutDown()
	})
	for l.next(ctx, store) {
	}
	group.Wait()
	return nil
}

func (l *podLoop) next(ctx context.Context, store cache.Store) bool {
	key, shutdown := l.queue.Get()
	if shutdown {
		return false
	}
	defer l.queue.Done(key)
	err := l.play(ctx, store, key)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		l.queue.Forget(key)
	case ctx.Err() == nil:
		l.log.Info("error syncing pod", "pod", key, "err", err.Error())
		l.queue.AddRateLimited(key)
	}
	return true
}

// play does the next step for one pod.
func (l *podLoop) play(ctx context.Context, store cache.Store, key string) error {
	obj, exists, err := store.GetByKey(key)
	if err == nil && !exists {
		l.Machine.SetContainers(key)
	}
	if err != nil || !exists {
		return err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Errorf("unexpected %T", obj)
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return l.end(ctx, pod, key)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return nil
	case runs(pod):
		l.Machine.SetContainers(key, containerIDs(pod)...)
		return nil
	case !l.ready.Load() && !pod.Spec.HostNetwork:
		return nil
	}
	return l.start(ctx, pod)
}

// runs(pod) reports whether the status says that the pod is running and ready.
func runs(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// end deletes a pod as soon as its containers have had enough time to end.
func (l *podLoop) end(ctx context.Context, pod *corev1.Pod, key string) error {
	l.mu.Lock()
	since, known := l.stopping[pod.UID]
	if !known {
		since = time.Now()
		l.stopping[pod.UID] = since
	}
	l.mu.Unlock()
	if left := time.Until(since.Add(l.stopTime(pod))); left > 0 {
		l.queue.AddAfter(key, left)
		return nil
	}
	now := int64(0)
	err := l.server.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		l.mu.Lock()
		delete(l.stopping, pod.UID)
		l.networks.release(pod.UID)
		l.mu.Unlock()
	}
	return err
}

func (l *podLoop) stopTime(pod *corev1.Pod) time.Duration {
	grace := time.Duration(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	if l.options.PodStop > 0 {
		return min(l.options.PodStop, grace)
	}
	return grace
}

// mount creates a volume of a pod on the host. If the host leaves the cluster before the pod is deleted, the volume
// remains on the host. The same is true of real pods.
func (l *podLoop) mount(pod *corev1.Pod) error {
	dir := contract.DirKubelet + `\pods\` + string(pod.UID) + `\volumes\kubernetes.io~projected\token`
	if err := l.Host.Files.MkdirAll(dir, winos.AccessInherit); err != nil {
		return err
	}
	return winos.WriteFile(l.Host.Files, dir+`\token`, strings.NewReader("a token"), winos.AccessInherit)
}

// start writes a status that says that all containers of a pod are running and ready.
func (l *podLoop) start(ctx context.Context, pod *corev1.Pod) error {
	ip := l.ip.String()
	if !pod.Spec.HostNetwork {
		cni := health{host: l.Host}
		if err := cni.readNetwork(); err != nil {
			return fmt.Errorf("setting up the pod's network: %w", err)
		}
		network, err := l.Host.Network.HNSNetwork(ctx, cni.network)
		if err != nil {
			return fmt.Errorf("setting up the pod's network: %w", err)
		}
		l.mu.Lock()
		ip = l.networks.take(pod.UID, network.Subnet)
		l.mu.Unlock()
	}
	if err := l.mount(pod); err != nil {
		return fmt.Errorf("setting up the pod's volumes: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": l.running(pod, ip)})
	if err != nil {
		return fmt.Errorf("writing the pod's status: %w", err)
	}
	_, err = l.server.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}
