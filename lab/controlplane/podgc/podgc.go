// Package podgc deletes pods that no kubelet can end. It marks them as failed and deletes them, with the same delays as
// the pod garbage collector of kube-controller-manager. That collector isn't used here: to compare one string, it
// imports kubelet's eviction, which adds 200 packages of kubelet, scheduler and cAdvisor that the lab's controller
// manager doesn't need otherwise. This package omits the limit on the number of ended pods (12,500) and the taint
// node.kubernetes.io/out-of-service.
package podgc

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// period is the interval between two checks of all pods.
	period = 20 * time.Second
	// quarantine is how long a node must be absent before its pods are deleted. The node may be registered again under
	// the same name, or the API server may know the node before this informer does.
	quarantine = 40 * time.Second
)

// Collector deletes the pods.
type Collector struct {
	client kubernetes.Interface
	pods   coreinformers.PodInformer
	nodes  coreinformers.NodeInformer
}

// New returns a collector that reads from the informers.
func New(client kubernetes.Interface, pods coreinformers.PodInformer, nodes coreinformers.NodeInformer) *Collector {
	pods.Informer()
	nodes.Informer()
	return &Collector{client: client, pods: pods, nodes: nodes}
}

// Run checks all pods periodically until its context ends.
func (c *Collector) Run(ctx context.Context) {
	if !cache.WaitForNamedCacheSyncWithContext(ctx, c.pods.Informer().HasSynced, c.nodes.Informer().HasSynced) {
		return
	}
	var away absence
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := c.look(ctx, &away); err != nil {
			klog.FromContext(ctx).Error(err, "Collecting pods")
		}
	}, period)
}

// look deletes all pods that are due.
func (c *Collector) look(ctx context.Context, away *absence) error {
	pods, err := c.pods.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	nodes, err := c.nodes.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	gone := sets.New[string]()
	for node := range away.see(time.Now(), pods, nodes) {
		_, err := c.client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			gone.Insert(node)
		}
	}
	var all sync.WaitGroup
	for _, pod := range doomed(pods, gone) {
		all.Go(func() {
			if err := c.remove(ctx, pod); err != nil {
				klog.FromContext(ctx).Error(err, "Collecting a pod", "pod", klog.KObj(pod))
			}
		})
	}
	all.Wait()
	return nil
}

// The type absence stores when each absent node of a pod was first found absent.
type absence struct{ since map[string]time.Time }

// see returns the nodes that have been absent for the time quarantine.
func (a *absence) see(now time.Time, pods []*corev1.Pod, nodes []*corev1.Node) sets.Set[string] {
	there := sets.New[string]()
	for _, node := range nodes {
		there.Insert(node.Name)
	}
	since, due := map[string]time.Time{}, sets.New[string]()
	for _, pod := range pods {
		name := pod.Spec.NodeName
		if name == "" || there.Has(name) {
			continue
		}
		first, seen := a.since[name]
		if !seen {
			first = now
		}
		since[name] = first
		if now.Sub(first) >= quarantine {
			due.Insert(name)
		}
	}
	a.since = since
	return due
}

// doomed returns the pods of deleted nodes, and the terminating pods that never had a node.
func doomed(pods []*corev1.Pod, gone sets.Set[string]) []*corev1.Pod {
	var all []*corev1.Pod
	for _, pod := range pods {
		if gone.Has(pod.Spec.NodeName) || pod.Spec.NodeName == "" && pod.DeletionTimestamp != nil {
			all = append(all, pod)
		}
	}
	return all
}

// remove marks a pod as failed, because no kubelet does this, and deletes it at once. If the pod is already deleted
// or replaced by a pod with the same name, remove does nothing.
func (c *Collector) remove(ctx context.Context, pod *corev1.Pod) error {
	pods := c.client.CoreV1().Pods(pod.Namespace)
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		patch, err := failure(pod)
		if err != nil {
			return err
		}
		_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("marking pod %s as failed: %w", klog.KObj(pod), err)
		}
	}
	var atOnce int64
	err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &atOnce, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}

// The function failure returns the patch that marks a pod as failed. It contains the pod's UID, so that it doesn't
// change a new pod with the same name.
func failure(pod *corev1.Pod) ([]byte, error) {
	status := map[string]any{"phase": corev1.PodFailed}
	if pod.Spec.NodeName != "" {
		status["conditions"] = []map[string]any{{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionTrue,
			"reason": "DeletionByPodGC", "message": "PodGC: node no longer exists",
			"lastTransitionTime": metav1.Now(),
		}}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return nil, fmt.Errorf("writing the patch of pod %s: %w", klog.KObj(pod), err)
	}
	return patch, nil
}
