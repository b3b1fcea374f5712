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
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// publishLatest keeps the Secret from which the daemons get the current revision by their watch. Whatever it
// lacks they read, and may read by then; so nothing waits for it. The answer is when to try again, 0 for never,
// and what keeps it from being published for so long that somebody must know.
func (p *publisher) publishLatest(ctx context.Context, desired blueprint.Desired) (again time.Duration,
	trouble *contract.Problem) {
	err := p.keepLatest(ctx, desired)
	if err != nil {
		logf.FromContext(ctx).V(1).Info("what is latest is not published yet", "revision", desired.Revision, "detail",
			err.Error())
		again = terminating
	}
	if trouble = p.latest.lasts(p.Now(), err, contract.ReasonLatestNotPublished); trouble != nil {
		again = recheck
	}
	return again, trouble
}

// keepLatest makes that Secret as it must be, or says why it is not.
func (p *publisher) keepLatest(ctx context.Context, desired blueprint.Desired) error {
	want, err := latestSecret(p.Namespace, desired)
	if err != nil {
		return err
	}
	found := &corev1.Secret{}
	err = p.client.Get(ctx, client.ObjectKeyFromObject(want), found)
	switch {
	case apierrors.IsNotFound(err):
		err = p.client.Create(ctx, want)
	case err != nil:
		return fmt.Errorf("reading Secret %s: %w", want.Name, err)
	case !found.DeletionTimestamp.IsZero():
		return fmt.Errorf("the Secret %s is being deleted since %s, and has the finalizers %q", want.Name,
			found.DeletionTimestamp.UTC().Format(time.RFC3339), found.Finalizers)
	case maps.EqualFunc(found.Data, want.Data, slices.Equal[[]byte]) && found.Type == want.Type &&
		found.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount:
		return nil
	default: // for that alone the operator needs no right to change Secrets
		if err = p.client.Delete(ctx, found, exactly(found)); client.IgnoreNotFound(err) == nil {
			err = p.client.Create(ctx, want)
		}
	}
	if err != nil {
		return fmt.Errorf("publishing Secret %s: %w", want.Name, err)
	}
	return nil
}

func latestSecret(namespace string, desired blueprint.Desired) (*corev1.Secret, error) {
	manifest, err := desired.Manifest.Data()
	if err != nil {
		return nil, err
	}
	encoded, _, err := desired.Confidential.Encode()
	if err != nil {
		return nil, err
	}
	latest := contract.Latest{Revision: desired.Revision, Manifest: manifest}
	if latest.Confidential, err = contract.PackConfidential(encoded); err != nil {
		return nil, err
	}
	data, err := latest.Data()
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: contract.LatestSecret,
			Labels: map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount},
		},
		Type: corev1.SecretTypeOpaque, Data: data,
	}, nil
}
