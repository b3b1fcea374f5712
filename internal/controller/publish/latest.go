package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// publishLatest keeps the Secret from which the daemons get the current version by their watch. It comes
// after the ConfigMap and the Secret of that version, which a daemon reads that can't watch.
func (p *publisher) publishLatest(ctx context.Context, desired blueprint.Desired) (again time.Duration, err error) {
	manifest, err := desired.Manifest.Data()
	if err != nil {
		return 0, err
	}
	encoded, _, err := desired.Confidential.Encode()
	if err != nil {
		return 0, err
	}
	latest := contract.Latest{Version: desired.Version, Manifest: manifest}
	if latest.Confidential, err = contract.PackConfidential(encoded); err != nil {
		return 0, err
	}
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: contract.LatestSecret,
			Labels: map[string]string{managedByLabel: contract.OperatorServiceAccount},
		},
		Type: corev1.SecretTypeOpaque,
	}
	if want.Data, err = latest.Data(); err != nil {
		return 0, err
	}
	found := &corev1.Secret{}
	err = p.client.Get(ctx, client.ObjectKeyFromObject(want), found)
	switch {
	case apierrors.IsNotFound(err):
		err = p.client.Create(ctx, want)
	case err != nil:
		return 0, fmt.Errorf("reading Secret %s: %w", want.Name, err)
	case !found.DeletionTimestamp.IsZero():
		return terminating, nil
	case maps.EqualFunc(found.Data, want.Data, slices.Equal[[]byte]) && found.Type == want.Type &&
		found.Labels[managedByLabel] == contract.OperatorServiceAccount:
		return 0, nil
	default: // for that alone the operator needs no right to change Secrets
		if err = p.client.Delete(ctx, found, exactly(found)); client.IgnoreNotFound(err) == nil {
			err = p.client.Create(ctx, want)
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return time.Second, nil
	}
	if err != nil {
		return 0, fmt.Errorf("publishing Secret %s: %w", want.Name, err)
	}
	return 0, nil
}
