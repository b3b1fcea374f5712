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
	data, err := latestData(desired)
	if err != nil {
		return err
	}
	// An update would need the right to change every Secret of the namespace.
	return p.keepSecret(ctx, p.secret(contract.LatestSecret, data),
		func(ctx context.Context, want client.Object, _ ...client.UpdateOption) error {
			err := p.client.Delete(ctx, want, exactly(want))
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			want.SetResourceVersion("")
			want.SetUID("")
			return p.client.Create(ctx, want)
		})
}

// secret is one of the operator's own Secrets.
func (p *publisher) secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name,
			Labels: map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount}},
		Type: corev1.SecretTypeOpaque, Data: data,
	}
}

// keepSecret creates a Secret, or replaces it if it differs. replace is given the wanted one with the UID and the
// resourceVersion of the one that is there.
func (p *publisher) keepSecret(ctx context.Context, want *corev1.Secret,
	replace func(context.Context, client.Object, ...client.UpdateOption) error) error {
	found := &corev1.Secret{}
	err := p.client.Get(ctx, client.ObjectKeyFromObject(want), found)
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
	default:
		want.UID, want.ResourceVersion = found.UID, found.ResourceVersion
		err = replace(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("publishing Secret %s: %w", want.Name, err)
	}
	return nil
}

func latestData(desired blueprint.Desired) (map[string][]byte, error) {
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
	return latest.Data()
}
