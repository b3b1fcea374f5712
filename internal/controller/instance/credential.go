package instance

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// SecretKey reads the SSH key from the secret cloud-private-key.
type SecretKey struct {
	Reader    client.Reader
	Namespace string
	// Live says that Reader reads past the cache. The operator may list the secret by its name, and
	// not get it.
	Live bool
	// Parse checks a PEM and gives the hash of its public key, or a *contract.Problem.
	Parse func(pem []byte) (hash string, err error)
}

var _ journey.Keys = SecretKey{}

// PrivateKey answers with a *contract.Problem when there is no usable key.
func (s SecretKey) PrivateKey(ctx context.Context) (journey.Key, error) {
	secret, err := s.read(ctx)
	if apierrors.IsNotFound(err) {
		return journey.Key{}, contract.NewProblem(contract.ReasonPrivateKeyMissing, "secret %s/%s does not exist",
			s.Namespace, contract.PrivateKeySecret)
	}
	if err != nil {
		return journey.Key{}, fmt.Errorf("reading secret %s: %w", contract.PrivateKeySecret, err)
	}
	pem, ok := secret.Data[contract.PrivateKeyField]
	if !ok {
		return journey.Key{}, contract.NewProblem(contract.ReasonPrivateKeyMissing, "secret %s/%s has no %s",
			s.Namespace, contract.PrivateKeySecret, contract.PrivateKeyField)
	}
	hash, err := s.Parse(pem)
	if err != nil {
		return journey.Key{}, err
	}
	return journey.Key{PEM: pem, Hash: hash}, nil
}

func (s SecretKey) read(ctx context.Context) (*corev1.Secret, error) {
	if !s.Live {
		secret := &corev1.Secret{}
		err := s.Reader.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: contract.PrivateKeySecret}, secret)
		return secret, err
	}
	list := &corev1.SecretList{}
	err := s.Reader.List(ctx, list, client.InNamespace(s.Namespace),
		client.MatchingFields{metav1.ObjectNameField: contract.PrivateKeySecret})
	if err != nil || len(list.Items) == 0 {
		return nil, cmp.Or(err, error(apierrors.NewNotFound(corev1.Resource("secrets"), contract.PrivateKeySecret)))
	}
	return &list.Items[0], nil
}

// RememberLast makes of a function that parses a private key one that does so once for each key:
// some kinds take milliseconds, and the key is asked for whenever a Node changes.
func RememberLast(parse func(pem []byte) (string, error)) func(pem []byte) (string, error) {
	var mu sync.Mutex
	var last, hash string
	var lastErr error
	return func(pem []byte) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if last == "" || last != string(pem) {
			hash, lastErr = parse(pem)
			last = string(pem)
		}
		return hash, lastErr
	}
}

// BootstrapToken mints tokens of the node bootstrapper. They end after an hour, or with the Secret
// that stands for the join.
type BootstrapToken struct {
	Client kubernetes.Interface
	// Namespace of the node bootstrapper, and of the Secrets.
	Namespace string
}

var _ journey.Tokens = BootstrapToken{}

// bootstrapSeconds is how long a host may take from here to kubelet's request.
const bootstrapSeconds = 3600

// BootstrapToken asks the API server for a token.
func (b BootstrapToken) BootstrapToken(ctx context.Context, instance *v1alpha1.WindowsInstance) (journey.Token,
	error) {
	name := bootstrapSecret(instance)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: contract.BootstrapSecretType,
		Immutable: ptr.To(true)}
	_, err := b.Client.CoreV1().Secrets(b.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return journey.Token{}, fmt.Errorf("making secret %s/%s: %w", b.Namespace, name, err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(bootstrapSeconds)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: name},
	}}
	answer, err := b.Client.CoreV1().ServiceAccounts(b.Namespace).
		CreateToken(ctx, contract.BootstrapServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return journey.Token{}, fmt.Errorf("requesting a token of %s/%s: %w", b.Namespace,
			contract.BootstrapServiceAccount, err)
	}
	id, err := policy.CredentialIDOf(answer.Status.Token)
	if err != nil {
		return journey.Token{}, err
	}
	return journey.Token{Text: answer.Status.Token, ID: id}, nil
}

// Revoke removes the Secret that the tokens are bound to.
func (b BootstrapToken) Revoke(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	name := bootstrapSecret(instance)
	err := b.Client.CoreV1().Secrets(b.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing secret %s/%s: %w", b.Namespace, name, err)
	}
	return nil
}

// bootstrapSecret is the Secret that stands for the join of an instance.
func bootstrapSecret(instance *v1alpha1.WindowsInstance) string {
	return contract.BootstrapSecretPrefix + string(instance.UID)
}
