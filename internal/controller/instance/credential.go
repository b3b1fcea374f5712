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

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/lifecycle"
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

var _ lifecycle.Keys = SecretKey{}

// PrivateKey answers with a *contract.Problem when there is no usable key.
func (s SecretKey) PrivateKey(ctx context.Context) (lifecycle.Key, error) {
	secret, err := s.read(ctx)
	if apierrors.IsNotFound(err) {
		return lifecycle.Key{}, contract.NewProblem(contract.ReasonPrivateKeyMissing, "secret %s/%s does not exist",
			s.Namespace, contract.PrivateKeySecret)
	}
	if err != nil {
		return lifecycle.Key{}, fmt.Errorf("reading secret %s: %w", contract.PrivateKeySecret, err)
	}
	pem, ok := secret.Data[contract.PrivateKeyField]
	if !ok {
		return lifecycle.Key{}, contract.NewProblem(contract.ReasonPrivateKeyMissing, "secret %s/%s has no %s",
			s.Namespace, contract.PrivateKeySecret, contract.PrivateKeyField)
	}
	hash, err := s.Parse(pem)
	if err != nil {
		return lifecycle.Key{}, err
	}
	return lifecycle.Key{PEM: pem, Hash: hash}, nil
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

// BootstrapToken mints tokens of the cluster's node bootstrapper: bound to nothing but time, and
// good for one hour.
type BootstrapToken struct{ Client kubernetes.Interface }

var _ lifecycle.Tokens = BootstrapToken{}

// bootstrapSeconds is how long a host may take from here to kubelet's request.
const bootstrapSeconds = 3600

// BootstrapToken asks the API server for a token.
func (b BootstrapToken) BootstrapToken(ctx context.Context) (string, error) {
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(bootstrapSeconds))}}
	answer, err := b.Client.CoreV1().ServiceAccounts(contract.MachineConfigNamespace).
		CreateToken(ctx, contract.BootstrapServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("requesting a token of %s/%s: %w", contract.MachineConfigNamespace,
			contract.BootstrapServiceAccount, err)
	}
	return answer.Status.Token, nil
}
