package publish

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

func (p *publisher) publishSecret(ctx context.Context, desired blueprint.Desired) (again time.Duration, err error) {
	data, _, err := desired.Confidential.Encode()
	if err != nil {
		return 0, err
	}
	packed, err := contract.PackConfidential(data)
	if err != nil {
		return 0, err
	}
	immutable := true
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: desired.SecretName(),
			Labels: map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount},
		},
		Immutable: &immutable, Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{contract.ConfidentialField: packed},
	}
	found := &corev1.Secret{}
	err = p.client.Get(ctx, client.ObjectKeyFromObject(want), found)
	switch {
	case apierrors.IsNotFound(err):
		return p.write(ctx, create, found, want)
	case err != nil:
		return 0, fmt.Errorf("reading Secret %s: %w", want.Name, err)
	}
	return p.write(ctx, judge(secretState(found, data)), found, want)
}

// secretState compares by what is in it: how well it is compressed does not count.
func secretState(found *corev1.Secret, data []byte) *state {
	have, _ := unpacked(found)
	marked := isTrue(found.Immutable) && found.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount
	return &state{
		deleting: !found.DeletionTimestamp.IsZero(), same: marked && bytes.Equal(have, data) &&
			found.Type == corev1.SecretTypeOpaque,
		// what differs is replaced: for that alone the operator needs no right to change Secrets
		immutable: true, labelled: true,
	}
}

// unpacked is what a Secret holds that has nothing else in it.
func unpacked(s *corev1.Secret) ([]byte, bool) {
	if len(s.Data) != 1 {
		return nil, false
	}
	data, err := contract.UnpackConfidential(s.Data[contract.ConfidentialField])
	return data, err == nil
}

// belongs reports whether a Secret holds the bytes with the digest that the manifest of its name
// has.
func belongs(s *corev1.Secret, digest string) bool {
	data, ok := unpacked(s)
	return ok && contract.Digest(data) == digest
}

// retireSecrets removes the Secrets whose manifests are gone, and those that are not what their
// manifests mean. A Secret is published before its manifest, so one without is given the same time
// as an unused revision.
func (r *retirer) retireSecrets(ctx context.Context, current blueprint.Desired,
	digests map[string]string) (next time.Duration, err error) {
	list := &corev1.SecretList{}
	if err = r.client.List(ctx, list, client.InNamespace(r.namespace)); err != nil {
		return 0, fmt.Errorf("listing Secrets: %w", err)
	}
	for i := range list.Items {
		s := &list.Items[i]
		if !strings.HasPrefix(s.Name, contract.ServicesSecretPrefix) || !isPublished(s) ||
			s.Name == current.SecretName() || !s.DeletionTimestamp.IsZero() {
			continue
		}
		digest, has := digests[s.Name]
		why := "its manifest is gone"
		switch left := r.grace - r.now().Sub(s.CreationTimestamp.Time); {
		case has && belongs(s, digest):
			continue
		case has:
			why = "its content is not what its manifest says"
		case left > 0:
			next = policy.Soonest(next, left)
			continue
		}
		if err = r.client.Delete(ctx, s, exactly(s)); apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue // its event brings us back
		} else if err != nil {
			return 0, fmt.Errorf("retiring Secret %s: %w", s.Name, err)
		}
		logf.FromContext(ctx).Info("secret of a services manifest retired", "secret", s.Name, "why", why)
		r.meters.retired.Inc()
		r.tell.retired(s, why)
	}
	return next, nil
}
