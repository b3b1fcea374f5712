package cloud

import (
	"context"
	"fmt"
	"maps"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// machineAnnotation on a Node names its Machine, as "<namespace>/<name>".
	machineAnnotation = "machine.openshift.io/machine"
	// uninitialized is the taint of a Node that no cloud controller has initialized.
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
)

// The type nodes does the work of two controllers. As the cloud controller, it sets the provider ID of a Node and
// removes the uninitialized taint. As the machine API, it links a Node with its Machine. On Azure, the node manager on
// the host does the work of the cloud controller, as on OpenShift.
type nodes struct {
	client.Client
	compute *compute
	options Options
}

// Reconcile reconciles one Node.
func (n *nodes) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	node := &corev1.Node{}
	if err := n.Get(ctx, request.NamespacedName, node); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !node.DeletionTimestamp.IsZero() || internalIP(node) == "" {
		return reconcile.Result{}, nil
	}
	wanted := node.DeepCopy()
	instance, ours := n.instanceOf(node)
	if n.options.Platform != configv1.AzurePlatformType {
		n.initialize(wanted, instance, ours)
	}
	if ours {
		if err := n.link(ctx, instance, wanted); err != nil {
			return reconcile.Result{}, err
		}
	}
	if equal(wanted, node) {
		return reconcile.Result{}, nil
	}
	// Other clients also change the list of taints, which this patch replaces.
	err := n.Patch(ctx, wanted, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
	if err != nil && client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("initializing node %s: %w", node.Name, err)
	}
	return reconcile.Result{}, nil
}

// initialize does the work of the cloud controller.
func (n *nodes) initialize(node *corev1.Node, instance description, ours bool) {
	switch {
	case ours:
		node.Spec.ProviderID = instance.providerID
	case tainted(node) && node.Spec.ProviderID == "":
		// The instance belongs to the same cloud, but has no Machine.
		node.Spec.ProviderID = ProviderID(n.options.Platform, node.Name)
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints,
		func(t corev1.Taint) bool { return t.Key == uninitialized })
}

// instanceOf returns the instance that a Node runs on.
func (n *nodes) instanceOf(node *corev1.Node) (description, bool) {
	if node.Spec.ProviderID != "" {
		return n.compute.find(func(i *instance) bool { return i.providerID == node.Spec.ProviderID })
	}
	return n.compute.find(func(i *instance) bool { return i.host != nil && i.address.String() == internalIP(node) })
}

// The method link copies data of the Machine to its Node.
func (n *nodes) link(ctx context.Context, instance description, node *corev1.Node) error {
	machine := &machinev1beta1.Machine{}
	if err := n.Get(ctx, instance.machine, machine); err != nil {
		return client.IgnoreNotFound(err)
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	node.Annotations[machineAnnotation] = instance.machine.String()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	maps.Copy(node.Labels, machine.Spec.Labels)
	for _, taint := range machine.Spec.Taints {
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
	return nil
}

func tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized })
}

// equal compares API objects semantically.
func equal(a, b any) bool { return equality.Semantic.DeepEqual(a, b) }

var _ reconcile.Reconciler = (*nodes)(nil)
