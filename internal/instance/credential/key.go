// Package credential provides the SSH key that the operator uses to log in to hosts. It also creates the first tokens
// of kubelets, and the commands of hosts that join by themselves.
package credential

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Key is the SSH key that the operator uses to log in to hosts.
type Key struct {
	PEM []byte
	// Hash is the hex SHA-256 of the public key's authorized_keys line.
	Hash string
}

// Keys provides the current Key.
type Keys interface {
	// PrivateKey returns the key. If there is no usable key, the error is a *contract.Problem.
	PrivateKey(ctx context.Context) (Key, error)
}

// SecretKey reads the SSH key from the secret cloud-private-key.
type SecretKey struct {
	Reader    client.Reader
	Namespace string
	// Live means that Reader reads from the API server. Then SecretKey lists the Secret by its name, because the
	// operator has no right to get the Secret.
	Live bool
	// Parse checks a PEM key and returns the hash of its public key, or a *contract.Problem.
	Parse func(pem []byte) (hash string, err error)
}

var _ Keys = SecretKey{}

// PrivateKey implements Keys.
func (s SecretKey) PrivateKey(ctx context.Context) (Key, error) {
	secret, err := s.read(ctx)
	if apierrors.IsNotFound(err) {
		return Key{}, contract.NewProblem(contract.ReasonPrivateKeyMissing, "secret %s/%s does not exist",
			s.Namespace, contract.PrivateKeySecret)
	}
	if err != nil {
		return Key{}, fmt.Errorf("reading secret %s: %w", contract.PrivateKeySecret, err)
	}
	pem, ok := secret.Data[contract.PrivateKeyField]
	if !ok {
		return Key{}, contract.NewProblem(contract.ReasonPrivateKeyMissing, "secret %s/%s has no %s",
			s.Namespace, contract.PrivateKeySecret, contract.PrivateKeyField)
	}
	hash, err := s.Parse(pem)
	if problem, ok := contract.AsProblem(err); ok {
		return Key{}, contract.NewProblem(problem.Reason, "secret %s/%s: %s", s.Namespace, contract.PrivateKeySecret,
			problem.Detail)
	}
	if err != nil {
		return Key{}, err
	}
	return Key{PEM: pem, Hash: hash}, nil
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

// RememberLast returns a function that calls the function `parse` only if the key has changed. After every change of a
// Node, the operator needs the parsed key, and some kinds of keys take milliseconds to parse.
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
