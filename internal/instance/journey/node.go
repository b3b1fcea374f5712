package journey

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Nodes reads Nodes, and writes the operator's marks on them.
type Nodes struct{ options *Options }

// Cordon cordons a node before a drain, and sets the label of a node with a slot in the rollout budget. If a user
// uncordoned the node after the operator had cordoned it, Cordon returns a conflict.
func (n *Nodes) Cordon(ctx context.Context, node *corev1.Node) error {
	err := n.changeDespiteConflicts(ctx, node, IsUncordoned, func(wanted *corev1.Node) {
		if wanted.Labels == nil {
			wanted.Labels = map[string]string{}
		}
		wanted.Labels[contract.UpgradingLabel] = "true"
		cordon(wanted)
	})
	if err != nil {
		return fmt.Errorf("cordoning node %s: %w", node.Name, err)
	}
	return nil
}

// KeepPodsAway cordons a node whose host is being removed.
func (n *Nodes) KeepPodsAway(ctx context.Context, node *corev1.Node) error {
	if err := n.changeDespiteConflicts(ctx, node, func(*corev1.Node) bool { return false }, cordon); err != nil {
		return fmt.Errorf("cordoning node %s: %w", node.Name, err)
	}
	return nil
}

func cordon(wanted *corev1.Node) {
	if wanted.Spec.Unschedulable {
		return
	}
	if wanted.Annotations == nil {
		wanted.Annotations = map[string]string{}
	}
	wanted.Spec.Unschedulable = true
	wanted.Annotations[contract.CordonedAnnotation] = "true"
}

// IsUncordoned reports whether another client removed the operator's cordon, but not its annotation.
func IsUncordoned(node *corev1.Node) bool {
	return node.Annotations[contract.CordonedAnnotation] == "true" && !node.Spec.Unschedulable
}

// Uncordon removes the operator's own cordon, and the label of a node with a slot.
func (n *Nodes) Uncordon(ctx context.Context, node *corev1.Node) error {
	never := func(*corev1.Node) bool { return false }
	err := n.changeDespiteConflicts(ctx, node, never, func(wanted *corev1.Node) {
		delete(wanted.Labels, contract.UpgradingLabel)
		if wanted.Annotations[contract.CordonedAnnotation] == "true" {
			wanted.Spec.Unschedulable = false
			delete(wanted.Annotations, contract.CordonedAnnotation)
		}
	})
	if err != nil {
		return fmt.Errorf("uncordoning node %s: %w", node.Name, err)
	}
	return nil
}

// change writes a Node if the function `edit` changes it. Afterwards, the parameter `node` contains the API server's
// version. If another client has written the Node since it was read, change returns a conflict.
func (n *Nodes) change(ctx context.Context, node *corev1.Node, edit func(wanted *corev1.Node)) error {
	wanted := node.DeepCopy()
	edit(wanted)
	if equality.Semantic.DeepEqual(node, wanted) {
		return nil
	}
	if err := n.options.Client.Patch(ctx, wanted,
		client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	wanted.DeepCopyInto(node)
	return nil
}

// changeDespiteConflicts writes like change, even if the host writes its Node all the time. After a conflict, it tries
// again with the current version, and then without a version, so the function `edit` must change single fields only. If
// the Node was replaced, or if `left` returns true for the current Node, changeDespiteConflicts returns the conflict.
func (n *Nodes) changeDespiteConflicts(ctx context.Context, node *corev1.Node, left func(live *corev1.Node) bool,
	edit func(wanted *corev1.Node)) error {
	err := n.change(ctx, node, edit)
	for _, isLocked := range []bool{true, false} {
		if !apierrors.IsConflict(err) {
			return err
		}
		live, failed := n.Live(ctx, node.Name)
		switch {
		case failed != nil:
			return failed
		case live == nil || live.UID != node.UID || left(live):
			return err
		case isLocked:
			if err = n.change(ctx, live, edit); err == nil {
				live.DeepCopyInto(node)
			}
			continue
		}
		if err = n.changeFields(ctx, live, edit); err == nil {
			live.DeepCopyInto(node)
		}
	}
	return err
}

// changeFields writes what `edit` changes, even if another client has written the Node since it was read. `edit` must
// change single fields only. If a Node with the same name has another UID, the API server refuses the write.
func (n *Nodes) changeFields(ctx context.Context, node *corev1.Node, edit func(wanted *corev1.Node)) error {
	wanted, base := node.DeepCopy(), node.DeepCopy()
	edit(wanted)
	base.UID = "" // so that the patch names the UID
	if err := n.options.Client.Patch(ctx, wanted, client.MergeFrom(base)); err != nil {
		return err
	}
	wanted.DeepCopyInto(node)
	return nil
}

// Get reads a Node from the cache, or returns nil.
func (n *Nodes) Get(ctx context.Context, name string) (*corev1.Node, error) {
	return n.read(ctx, n.options.Client, name)
}

// Live reads a Node from the API server, or returns nil.
func (n *Nodes) Live(ctx context.Context, name string) (*corev1.Node, error) {
	return n.read(ctx, n.options.Live, name)
}

// Adopted reads the Node that the instance adopted. If the cache doesn't show this Node, it reads the API server. If
// there is no Node of this name, it returns nil.
func (n *Nodes) Adopted(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, error) {
	node, err := n.Get(ctx, instance.Status.NodeName)
	if err == nil && (node == nil || string(node.UID) != instance.Status.NodeUID) {
		return n.Live(ctx, instance.Status.NodeName)
	}
	return node, err
}

func (n *Nodes) read(ctx context.Context, from client.Reader, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := from.Get(ctx, objectKey(name), node)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading node %s: %w", name, err)
	}
	return node, nil
}

// At returns the Nodes with this address.
func (n *Nodes) At(ctx context.Context, address string) ([]corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := n.options.Client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(node corev1.Node) bool {
		return !slices.ContainsFunc(node.Status.Addresses,
			func(a corev1.NodeAddress) bool { return a.Address == address })
	}), nil
}

// SetFields writes fields if they differ. Afterwards, the parameter `node` contains the API server's version. If the
// API server refuses the fields permanently, the error is a problem.
func (n *Nodes) SetFields(ctx context.Context, node *corev1.Node, fields NodeFields) error {
	return fields.written(node, n.change(ctx, node, fields.Apply))
}

// Request marks a Node with the revision that its daemon must apply, and deletes the daemon's earlier report in the
// same write. So a later report is the response to this request. kubelet writes the status of a new Node several times
// a second, so Request writes a Node without a mark regardless of its version. Exception: a patch replaces the whole
// list of taints, so the version must match if the taints change.
func (n *Nodes) Request(ctx context.Context, node *corev1.Node, fields NodeFields) error {
	edit := func(wanted *corev1.Node) {
		fields.Apply(wanted)
		delete(wanted.Annotations, contract.ApplyStatusAnnotation)
	}
	write, marked := n.change, node.DeepCopy()
	edit(marked)
	if node.Annotations[contract.InstanceAnnotation] == "" &&
		equality.Semantic.DeepEqual(marked.Spec.Taints, node.Spec.Taints) {
		write = n.changeFields
	}
	return fields.written(node, write(ctx, node, edit))
}

// Annotate writes annotations of a Node. An empty value deletes an annotation.
func (n *Nodes) Annotate(ctx context.Context, node *corev1.Node, values map[string]string) error {
	err := n.change(ctx, node, func(wanted *corev1.Node) {
		for key, value := range values {
			if value == "" {
				delete(wanted.Annotations, key)
				continue
			}
			if wanted.Annotations == nil {
				wanted.Annotations = map[string]string{}
			}
			wanted.Annotations[key] = value
		}
	})
	if err != nil {
		return fmt.Errorf("annotating node %s: %w", node.Name, err)
	}
	return nil
}

// Ours reads the instance's Node from the cache, or returns nil. A Node that kubelet has just registered has no mark
// yet. If the host has no credential, it can't have registered a Node, so a Node without the mark belongs to another
// operator.
func (n *Nodes) Ours(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, error) {
	if instance.Status.NodeName == "" {
		return nil, nil
	}
	node, err := n.Get(ctx, instance.Status.NodeName)
	return Ours(node, instance), err
}

// OursLive is Ours with a Node from the API server. Use it if a stale Node would cause a wrong decision.
func (n *Nodes) OursLive(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, error) {
	if instance.Status.NodeName == "" {
		return nil, nil
	}
	node, err := n.Live(ctx, instance.Status.NodeName)
	return Ours(node, instance), err
}

// Ours returns the Node if it belongs to the instance, or nil.
func Ours(node *corev1.Node, instance *v1alpha1.WindowsInstance) *corev1.Node {
	if node == nil || Foreign(node, instance) != nil ||
		node.Annotations[contract.InstanceAnnotation] == "" && !HasName(&instance.Status) {
		return nil
	}
	return node
}

// Delete deletes exactly this Node, and no later Node of the same name.
func (n *Nodes) Delete(ctx context.Context, node *corev1.Node) error {
	if err := n.options.Client.Delete(
		ctx, node, client.Preconditions{UID: ptr.To(node.UID)}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting node %s: %w", node.Name, err)
	}
	return nil
}

func objectKey(name string) client.ObjectKey { return types.NamespacedName{Name: name} }

// ReturnToService removes the operator's marks of a disruption, and its own cordon.
func (n *Nodes) ReturnToService(ctx context.Context, node *corev1.Node) Outcome {
	if err := n.Uncordon(ctx, node); err != nil {
		return RetryWrite(err)
	}
	return Done()
}
