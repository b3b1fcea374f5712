package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// hold cordons a node that is to be drained, and shows that it has a place in the rollout budget. A
// cordon that is there already is not ours and stays.
func (w *Walker) hold(ctx context.Context, node *corev1.Node) error {
	err := w.change(ctx, node, func(wanted *corev1.Node) {
		if wanted.Labels == nil {
			wanted.Labels = map[string]string{}
		}
		wanted.Labels[contract.UpgradingLabel] = "true"
		if wanted.Spec.Unschedulable {
			return
		}
		if wanted.Annotations == nil {
			wanted.Annotations = map[string]string{}
		}
		wanted.Spec.Unschedulable = true
		wanted.Annotations[contract.CordonedAnnotation] = "true"
	})
	if err != nil {
		return fmt.Errorf("cordoning node %s: %w", node.Name, err)
	}
	return nil
}

// lifted says that somebody else took our cordon away: we write cordon and mark at once.
func lifted(node *corev1.Node) bool {
	return node.Annotations[contract.CordonedAnnotation] == "true" && !node.Spec.Unschedulable
}

// uncordon lifts a cordon that is ours, and no other, and takes away what shows a place in the
// budget.
func (w *Walker) uncordon(ctx context.Context, node *corev1.Node) error {
	err := w.change(ctx, node, func(wanted *corev1.Node) {
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

// change writes a Node where it differs; node is then what the API server has. It answers a
// conflict when somebody else has written, or the cache lags behind.
func (w *Walker) change(ctx context.Context, node *corev1.Node, edit func(wanted *corev1.Node)) error {
	wanted := node.DeepCopy()
	edit(wanted)
	if equality.Semantic.DeepEqual(node, wanted) {
		return nil
	}
	if err := w.written.check(node, w.Now()); err != nil {
		return err
	}
	if err := w.Client.Patch(ctx, wanted,
		client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	w.written.note(wanted, w.Now())
	wanted.DeepCopyInto(node)
	return nil
}
