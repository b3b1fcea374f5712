package userdata

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/contract"
)

// wanted is the desired content of a Secret with user data. hostKey is "<type> <base64>" or empty.
type wanted struct{ script, publicKeyHash, hostKey string }

// The method `into` changes only the operator's part of a Secret, because users may set keys that machine controllers
// read. If the script already contained this host key, the time of the key's publication stays the same.
func (w wanted) into(s *corev1.Secret, now time.Time) {
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	if w.hostKey == "" {
		delete(s.Annotations, contract.HostKeyPublishedAnnotation)
	} else if !w.isDated(s, now) {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, contract.HostKeyPublishedAnnotation, now.UTC().Format(time.RFC3339))
	}
	s.Data[contract.UserDataField] = []byte(w.script)
	metav1.SetMetaDataLabel(&s.ObjectMeta, contract.ManagedByLabel, contract.OperatorServiceAccount)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, contract.PublicKeyHashAnnotation, w.publicKeyHash)
}

// isDated reports whether a Secret records a valid time when this host key was added. A time in the future comes from a
// wrong clock, and would make the operator trust all new Machines at first contact.
func (w wanted) isDated(s *corev1.Secret, now time.Time) bool {
	since, has := hostKeySince(s, w.hostKey)
	return has && !since.After(now.Add(margin))
}

func (w wanted) in(s *corev1.Secret, now time.Time) bool {
	return (w.hostKey == "" || w.isDated(s, now)) && bytes.Equal(s.Data[contract.UserDataField], []byte(w.script)) &&
		s.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount &&
		s.Annotations[contract.PublicKeyHashAnnotation] == w.publicKeyHash
}

// readUserData reads the user data of Machines. The result is empty if the Secret doesn't exist or may not be read.
func readUserData(ctx context.Context, live client.Reader) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: contract.UserDataSecret}
	err := live.Get(ctx, name, secret)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return secret, nil
	}
	return nil, fmt.Errorf("reading secret %s: %w", name, err)
}

// The function `foreign` returns why the operator may not change a Secret, or "". The operator may change a Secret
// without any mark, because an earlier operator may have created it.
func foreign(s *corev1.Secret) string {
	manager := s.Labels[contract.ManagedByLabel]
	switch {
	case manager != "" && manager != contract.OperatorServiceAccount:
		return fmt.Sprintf("is managed by %.63q", manager)
	case len(s.OwnerReferences) > 0:
		return fmt.Sprintf("belongs to %.63s %.253s", s.OwnerReferences[0].Kind, s.OwnerReferences[0].Name)
	case s.Immutable != nil && *s.Immutable:
		return "is immutable"
	case s.Type != "" && s.Type != corev1.SecretTypeOpaque:
		return fmt.Sprintf("has the type %.253s", s.Type)
	}
	return ""
}

// keep creates or corrects the Secret in a namespace. If the namespace is missing, keep does nothing.
func (r *reconciler) keep(ctx context.Context, namespace string, want wanted) (*contract.Problem, error) {
	if absent, err := r.absent(ctx, namespace); absent || err != nil {
		return nil, err
	}
	found, now := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.UserDataSecret},
		Type: corev1.SecretTypeOpaque}, r.Now()
	err := r.live.Get(ctx, client.ObjectKeyFromObject(found), found)
	switch why := foreign(found); {
	case apierrors.IsNotFound(err):
		want.into(found, now)
		err = r.client.Create(ctx, found)
	case err != nil:
	case !found.DeletionTimestamp.IsZero(), want.in(found, now):
		return nil, nil
	case why != "":
		return contract.NewProblem(contract.ReasonUserDataForeign, "secret %s/%s %s", namespace,
			contract.UserDataSecret, why), nil
	default:
		want.into(found, now)
		err = r.client.Update(ctx, found)
	}
	switch {
	case apierrors.IsForbidden(err):
		return contract.NewProblem(contract.ReasonUserDataForbidden, "secret %s/%s may not be read and written",
			namespace, contract.UserDataSecret), nil
	case err != nil:
		return nil, fmt.Errorf("maintaining secret %s in %s: %w", contract.UserDataSecret, namespace, err)
	}
	logf.FromContext(ctx).Info("user data written", "namespace", namespace)
	return nil, nil
}

// The method `absent` reports whether a namespace is missing or is being deleted. A request in a missing namespace is
// forbidden rather than not found, because the namespace contains no Roles.
func (r *reconciler) absent(ctx context.Context, namespace string) (bool, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := r.live.Get(ctx, client.ObjectKey{Name: namespace}, object)
	switch {
	case err == nil:
		return !object.DeletionTimestamp.IsZero(), nil
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil
	}
	return false, fmt.Errorf("reading namespace %s: %w", namespace, err)
}
