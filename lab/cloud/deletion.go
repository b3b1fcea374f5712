package cloud

import (
	"context"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// If a Machine has the annotation excludeDraining, its Node isn't drained.
	excludeDraining = "machine.openshift.io/exclude-node-draining"
	// lookAgain is the interval at which the machine API polls pods during a drain, and instances that are shutting
	// down.
	lookAgain = 200 * time.Millisecond
)

// retire deletes a Machine in the order of the machine API: drain, instance, Node, finalizer. Each step waits for its
// hooks.
func (m *machines) retire(ctx context.Context, machine *machinev1beta1.Machine) (reconcile.Result, error) {
	if !controllerutil.ContainsFinalizer(machine, machinev1beta1.MachineFinalizer) {
		return reconcile.Result{}, nil
	}
	err := m.status(
		ctx, machine, func(
			status *machinev1beta1.MachineStatus) {
			status.Phase = ptr.To(machinev1beta1.PhaseDeleting)
		})
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if len(machine.Spec.LifecycleHooks.PreDrain) > 0 {
		return reconcile.Result{}, nil // the end of the last hook triggers another reconcile
	}
	node, err := m.own(ctx, machine)
	if err != nil {
		return reconcile.Result{}, err
	}
	if _, excluded := machine.Annotations[excludeDraining]; node != nil && !excluded {
		if drained, err := m.drain(ctx, node); err != nil || !drained {
			return reconcile.Result{RequeueAfter: lookAgain}, err
		}
	}
	if len(machine.Spec.LifecycleHooks.PreTerminate) > 0 {
		return reconcile.Result{}, nil
	}
	if !m.compute.terminate(machine.UID) {
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	if node != nil {
		if err := m.Delete(ctx, node); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("deleting node %s: %w", node.Name, err)
		}
	}
	patch := client.MergeFrom(machine.DeepCopy())
	controllerutil.RemoveFinalizer(machine, machinev1beta1.MachineFinalizer)
	if err := m.Patch(ctx, machine, patch); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("letting machine %s go: %w", machine.Name, err)
	}
	return reconcile.Result{}, nil
}

// The method own returns the Node of a Machine, or nil.
func (m *machines) own(ctx context.Context, machine *machinev1beta1.Machine) (*corev1.Node, error) {
	if machine.Status.NodeRef == nil {
		return nil, nil //nolint:nilnil // the Machine never became a node
	}
	node := &corev1.Node{}
	err := m.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // the Node is already deleted
	}
	if err != nil {
		return nil, fmt.Errorf("reading the node of machine %s: %w", machine.Name, err)
	}
	return node, nil
}

// drain cordons a Node and evicts its pods, and reports whether the pods have ended. If the Node isn't Ready, drain
// doesn't wait for the pods.
func (m *machines) drain(ctx context.Context, node *corev1.Node) (drained bool, err error) {
	if !node.Spec.Unschedulable {
		patch := client.MergeFrom(node.DeepCopy())
		node.Spec.Unschedulable = true
		if err = m.Patch(ctx, node, patch); err != nil {
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
	}
	pods := &corev1.PodList{}
	if err = m.live.List(ctx, pods, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return false, fmt.Errorf("listing the pods of node %s: %w", node.Name, err)
	}
	drained = true
	for _, pod := range pods.Items {
		if stays(&pod) {
			continue
		}
		drained = false
		if !pod.DeletionTimestamp.IsZero() {
			continue
		}
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		err = m.SubResource("eviction").Create(ctx, &pod, eviction)
		if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	return drained || !policy.IsReady(node), nil
}

// The function stays reports whether a drain ignores a pod.
func stays(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}
