package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Tokens creates bootstrap tokens for kubelets.
type Tokens interface {
	// BootstrapToken returns a new token for the first certificate request of an instance's kubelet. Old tokens stay
	// valid.
	BootstrapToken(ctx context.Context, instance *v1alpha1.WindowsInstance) (Token, error)
	// Revoke revokes all tokens of an instance. A repeated call does nothing.
	Revoke(ctx context.Context, instance *v1alpha1.WindowsInstance) error
}

// Token is a token of the node bootstrapper.
type Token struct {
	Text string
	// ID is the token's id at the API server. Unlike Text, it is not secret.
	ID string
	// Expires is when the token becomes invalid.
	Expires time.Time
}

// Issuer creates tokens for the service account of the node bootstrapper. Each token is bound to a Secret: if the
// Secret is deleted, the token becomes invalid.
type Issuer struct {
	Client kubernetes.Interface
	// Namespace is the operator's namespace, with the service account and the Secrets.
	Namespace string
}

var _ Tokens = Issuer{}

// bootstrapLifetime is the lifetime of a bootstrap token. Within this time, kubelet must request its certificate.
const bootstrapLifetime = time.Hour

// BootstrapToken implements Tokens.
func (i Issuer) BootstrapToken(ctx context.Context, instance *v1alpha1.WindowsInstance) (Token, error) {
	secret, err := i.secret(ctx, &corev1.Secret{ObjectMeta: i.owned(bootstrapSecret(instance), instance),
		Type: contract.BootstrapSecretType, Immutable: ptr.To(true)})
	if err != nil {
		return Token{}, err
	}
	return i.token(ctx, secret.Name, bootstrapLifetime)
}

// Revoke implements Tokens. It deletes the Secret that the tokens are bound to.
func (i Issuer) Revoke(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	return i.remove(ctx, bootstrapSecret(instance))
}

func bootstrapSecret(instance *v1alpha1.WindowsInstance) string {
	return contract.BootstrapSecretPrefix + string(instance.UID)
}

// token requests a token that becomes invalid when a Secret is deleted.
func (i Issuer) token(ctx context.Context, secret string, lifetime time.Duration) (Token, error) {
	answer, err := i.Client.CoreV1().ServiceAccounts(i.Namespace).CreateToken(ctx, contract.BootstrapServiceAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To(int64(lifetime.Seconds())),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret},
		}}, metav1.CreateOptions{})
	if err != nil {
		return Token{}, fmt.Errorf("requesting a token of %s/%s: %w", i.Namespace,
			contract.BootstrapServiceAccount, err)
	}
	id, err := policy.CredentialIDOf(answer.Status.Token)
	return Token{Text: answer.Status.Token, ID: id, Expires: answer.Status.ExpirationTimestamp.Time}, err
}

// secret creates a Secret, or returns the existing one.
func (i Issuer) secret(ctx context.Context, wanted *corev1.Secret) (*corev1.Secret, error) {
	secret, err := i.Client.CoreV1().Secrets(i.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if secret, err = i.find(ctx, wanted.Name); secret == nil && err == nil {
			err = errors.New("it was deleted concurrently")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating secret %s: %w", wanted.Name, err)
	}
	return secret, nil
}

// find reads a Secret from the API server, because the cache may not show it yet. It returns nil if there is none.
func (i Issuer) find(ctx context.Context, name string) (*corev1.Secret, error) {
	found, err := i.Client.CoreV1().Secrets(i.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil || len(found.Items) == 0 {
		return nil, err
	}
	return &found.Items[0], nil
}

// remove deletes a Secret, which revokes its tokens. A repeated call does nothing.
func (i Issuer) remove(ctx context.Context, name string) error {
	err := i.Client.CoreV1().Secrets(i.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting secret %s/%s: %w", i.Namespace, name, err)
	}
	return nil
}

// owned returns the metadata of an object that the garbage collector deletes after the instance, even if a user removed
// the instance's finalizer. The object doesn't block the instance's deletion, because blocking it needs one more right.
func (i Issuer) owned(name string, instance *v1alpha1.WindowsInstance) metav1.ObjectMeta {
	version, kind := v1alpha1.GroupVersion().WithKind("WindowsInstance").ToAPIVersionAndKind()
	return metav1.ObjectMeta{Name: name, Namespace: i.Namespace, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: version, Kind: kind, Name: instance.Name, UID: instance.UID}}}
}
