package publish

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/contract"
)

// keepTrustedCA keeps the ConfigMap into which the cluster puts the CAs of its proxy, while
// nodes need them. What stands in it is the cluster's alone.
func (p *publisher) keepTrustedCA(ctx context.Context, wanted bool) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace,
		Name: contract.TrustedCAConfigMap}}
	err := p.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading ConfigMap %s: %w", contract.TrustedCAConfigMap, err)
	}
	marks := map[string]string{contract.InjectTrustedCALabel: "true",
		contract.ManagedByLabel: contract.OperatorServiceAccount}
	ours := object.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount
	switch {
	case wanted && !exists:
		object.Name, object.Namespace, object.Labels = contract.TrustedCAConfigMap, p.Namespace, marks
		err = p.client.Create(ctx, object)
	case wanted && object.Labels[contract.InjectTrustedCALabel] != "true":
		marked := object.DeepCopy()
		if marked.Labels == nil {
			marked.Labels = map[string]string{}
		}
		marked.Labels[contract.InjectTrustedCALabel] = "true"
		err = p.client.Patch(ctx, marked, client.MergeFrom(object))
	case !wanted && exists && ours && object.DeletionTimestamp.IsZero():
		err = p.client.Delete(ctx, object, exactly(object))
	default:
		return nil
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return nil // its event brings us back
	}
	if err != nil { // a conflict, too: what it met may be no event here
		return fmt.Errorf("keeping ConfigMap %s: %w", contract.TrustedCAConfigMap, err)
	}
	logf.FromContext(ctx).Info("the ConfigMap for the proxy's CAs follows", "configMap",
		contract.TrustedCAConfigMap, "wanted", wanted)
	return nil
}
