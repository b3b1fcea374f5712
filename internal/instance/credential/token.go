package credential

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Tokens creates bootstrap tokens for kubelets.
type Tokens interface {
	// BootstrapToken returns a new token with which an instance's kubelet requests its certificate. Old tokens stay
	// valid.
	BootstrapToken(ctx context.Context, instance *v1alpha1.WindowsInstance) (Token, error)
	// Revoke revokes all tokens of an instance. A repeated call does nothing.
	Revoke(ctx context.Context, instance *v1alpha1.WindowsInstance) error
}

// Token is a bootstrap token.
type Token struct {
	Text string
	// ID is the token's id at the API server. It is not secret, but Text is.
	ID string
}

// BootstrapToken creates tokens for the service account of the node bootstrapper. If the Secret of the join is deleted,
// the token becomes invalid before its lifetime ends.
type BootstrapToken struct {
	Client kubernetes.Interface
	// Namespace is the namespace of the node bootstrapper's service account and of the Secrets.
	Namespace string
}

var _ Tokens = BootstrapToken{}

// bootstrapSeconds is the lifetime of a token. Within this time, kubelet must request its certificate.
const bootstrapSeconds = 3600

// BootstrapToken implements Tokens.
func (b BootstrapToken) BootstrapToken(ctx context.Context, instance *v1alpha1.WindowsInstance) (Token, error) {
	name := bootstrapSecret(instance)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: ownedBy(instance)},
		Type: contract.BootstrapSecretType, Immutable: ptr.To(true)}
	_, err := b.Client.CoreV1().Secrets(b.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return Token{}, fmt.Errorf("making secret %s/%s: %w", b.Namespace, name, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(bootstrapSeconds)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: name},
	}}
	answer, err := b.Client.CoreV1().ServiceAccounts(b.Namespace).
		CreateToken(ctx, contract.BootstrapServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return Token{}, fmt.Errorf("requesting a token of %s/%s: %w", b.Namespace,
			contract.BootstrapServiceAccount, err)
	}
	id, err := policy.CredentialIDOf(answer.Status.Token)
	if err != nil {
		return Token{}, err
	}
	return Token{Text: answer.Status.Token, ID: id}, nil
}

// With the owner reference, the garbage collector deletes an instance's Secrets if a user removes the finalizer. The
// reference doesn't block the instance's deletion, because that would need another right.
func ownedBy(instance *v1alpha1.WindowsInstance) []metav1.OwnerReference {
	version, kind := v1alpha1.GroupVersion().WithKind("WindowsInstance").ToAPIVersionAndKind()
	return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: instance.Name, UID: instance.UID}}
}

// Revoke deletes the Secret that the tokens are bound to.
func (b BootstrapToken) Revoke(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	name := bootstrapSecret(instance)
	err := b.Client.CoreV1().Secrets(b.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing secret %s/%s: %w", b.Namespace, name, err)
	}
	return nil
}

func bootstrapSecret(instance *v1alpha1.WindowsInstance) string {
	return contract.BootstrapSecretPrefix + string(instance.UID)
}
