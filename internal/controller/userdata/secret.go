package userdata

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

	"github.com/windows-nodes/wmco/internal/contract"
)

// settling is how long to wait for a write of somebody else to be over: one that ours met, or a
// deletion.
const settling = 2 * time.Second

// secretState is how the secret of one namespace is after a look at it.
type secretState struct {
	// holds says that the secret is as it must be.
	holds bool
	// absent says that there is no such namespace.
	absent bool
	// later says that it can be said only after settling.
	later bool
	// after is when it is written again; 0 when nothing holds that up.
	after   time.Duration
	problem *contract.Problem
}

// wanted is what the secret must hold. hostKey is the public part of the host key in the script;
// nil where it has none.
type wanted struct {
	script, publicKeyHash string
	hostKey               *hostKey
}

// secret is windows-user-data in one namespace.
func (w wanted) secret(namespace string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.UserDataSecret},
		Type: corev1.SecretTypeOpaque}
	w.into(s)
	return s
}

// into changes what is ours in a secret. Further keys are left alone: machine controllers know some
// that users may set.
func (w wanted) into(s *corev1.Secret) {
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	s.Data[contract.UserDataField] = []byte(w.script)
	metav1.SetMetaDataLabel(&s.ObjectMeta, contract.ManagedByLabel, contract.OperatorServiceAccount)
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, contract.PublicKeyHashAnnotation, w.publicKeyHash)
}

// in says whether a secret is as it must be.
func (w wanted) in(s *corev1.Secret) bool {
	return bytes.Equal(s.Data[contract.UserDataField], []byte(w.script)) &&
		s.Labels[contract.ManagedByLabel] == contract.OperatorServiceAccount &&
		s.Annotations[contract.PublicKeyHashAnnotation] == w.publicKeyHash
}

// foreign says why a secret that differs is not ours to change; empty when it is. One without any
// mark is: the name is the operator's, and an earlier operator may have left it.
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

// keep makes the secret of a namespace what it must be. A repeated call writes nothing.
func (r *reconciler) keep(ctx context.Context, namespace string, want wanted) (secretState, error) {
	absent, err := r.absent(ctx, namespace)
	if absent || err != nil {
		return secretState{absent: absent}, err
	}
	found := &corev1.Secret{}
	err = r.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: contract.UserDataSecret}, found)
	switch {
	case apierrors.IsForbidden(err):
		return refused(namespace), nil
	case apierrors.IsNotFound(err):
		return r.create(ctx, namespace, want)
	case err != nil:
		return secretState{}, fmt.Errorf("reading secret %s of %s: %w", contract.UserDataSecret, namespace, err)
	}
	r.watcher.begin(ctx, namespace)
	switch why := foreign(found); {
	case !found.DeletionTimestamp.IsZero():
		return secretState{later: true}, nil
	case want.in(found):
		return secretState{holds: true}, nil
	case why != "":
		return secretState{problem: contract.NewProblem(contract.ReasonUserDataForeign, "secret %s/%s %s", namespace,
			contract.UserDataSecret, why)}, nil
	}
	if after, rewritten := r.rewrites.next(namespace, want.script, r.Now()); after > 0 {
		return secretState{after: after, problem: contract.NewProblem(contract.ReasonUserDataForeign, "secret %s/%s "+
			"is rewritten by somebody else, %d times by now", namespace, contract.UserDataSecret, rewritten)}, nil
	}
	if err = r.interrupted(ctx, namespace, want, found.Data[contract.UserDataField]); err != nil {
		return secretState{}, err
	}
	want.into(found)
	return wrote(ctx, namespace, r.client.Update(ctx, found))
}

// interrupted notes, before the script is written, that machines may have been made without the
// host key: from the script that stands there or, if there is none, from others before it.
func (r *reconciler) interrupted(ctx context.Context, namespace string, want wanted, stands []byte) error {
	if namespace != contract.MachineAPINamespace || want.hostKey == nil ||
		bytes.Contains(stands, []byte(want.hostKey.line)) {
		return nil
	}
	return r.mark(ctx, want.hostKey, false)
}

func (r *reconciler) create(ctx context.Context, namespace string, want wanted) (secretState, error) {
	r.watcher.begin(ctx, namespace)
	if err := r.interrupted(ctx, namespace, want, nil); err != nil {
		return secretState{}, err
	}
	return wrote(ctx, namespace, r.client.Create(ctx, want.secret(namespace)))
}

func wrote(ctx context.Context, namespace string, err error) (secretState, error) {
	switch {
	case err == nil:
		logf.FromContext(ctx).Info("user data written", "namespace", namespace)
		return secretState{holds: true}, nil
	case apierrors.IsForbidden(err):
		return refused(namespace), nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return secretState{later: true}, nil
	case apierrors.IsNotFound(err): // the namespace went, or the secret
		return secretState{later: true}, nil
	}
	return secretState{}, fmt.Errorf("writing secret %s of %s: %w", contract.UserDataSecret, namespace, err)
}

// absent says that a namespace is not there. In one that isn't nobody has rights, so that must be
// known first; whoever may not know it goes on.
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

func refused(namespace string) secretState {
	return secretState{problem: contract.NewProblem(contract.ReasonUserDataForbidden,
		"secret %s/%s may not be read and written", namespace, contract.UserDataSecret)}
}

// said is a problem for a log or an event.
func said(p *contract.Problem) string { return strings.TrimSpace(p.Error() + ". " + p.Reason.Fix()) }
