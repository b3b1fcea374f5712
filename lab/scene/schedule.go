package scene

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
)

// schedule binds pods that wait to the Windows node that serves and has the fewest, until ctx ends.
// It stands in for kube-scheduler, of which an upgrade wants no more than this.
func schedule(ctx context.Context, config *rest.Config) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		err := bindAll(ctx, clients)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !passing(err) {
			return fmt.Errorf("scheduling pods: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// passing says whether an error is gone the next time.
func passing(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) || apierrors.IsInternalError(err) ||
		apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
}

func bindAll(ctx context.Context, clients kubernetes.Interface) error {
	pods, err := clients.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return err
	}
	load, waiting := map[string]int{}, []*corev1.Pod{}
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case pod.Spec.NodeName != "":
			load[pod.Spec.NodeName]++
		case pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0:
			waiting = append(waiting, pod)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	nodes, err := clients.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{ResourceVersion: "0", LabelSelector: contract.OSIDLabel + "=" + contract.OSIDWindows})
	if err != nil {
		return err
	}
	for _, pod := range waiting {
		node := leastLoaded(nodes.Items, load)
		if node == "" {
			return nil
		}
		binding := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: node},
		}
		if err = clients.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			return err
		}
		load[node]++
	}
	return nil
}

func leastLoaded(nodes []corev1.Node, load map[string]int) (name string) {
	for i := range nodes {
		n := &nodes[i]
		if serves(n) && (name == "" || load[n.Name] < load[name]) {
			name = n.Name
		}
	}
	return name
}

// serves says whether a node takes pods.
func serves(n *corev1.Node) bool { return !n.Spec.Unschedulable && isReady(n) }

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
