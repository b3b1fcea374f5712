package userdata

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/userdata"
)

// hostKey is the shared host key: its PEM, and its public part as "<type> <base64>".
type hostKey struct {
	pem  []byte
	line string
}

// readHostKey reads the Secret with the shared host key. It returns nil if the Secret doesn't exist, and a
// *contract.Problem if the Secret contains no valid host key.
func readHostKey(ctx context.Context, cached client.Reader, namespace string) (*hostKey, error) {
	secret := &corev1.Secret{}
	err := cached.Get(ctx, client.ObjectKey{Namespace: namespace, Name: contract.HostKeySecret}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading secret %s: %w", contract.HostKeySecret, err)
	}
	key := &hostKey{pem: secret.Data[contract.HostKeyField]}
	if key.line, err = userdata.HostKeyLine(key.pem); err != nil {
		return nil, contract.NewProblem(contract.ReasonHostKeySecretInvalid, "secret %s/%s: %v", namespace,
			contract.HostKeySecret, err)
	}
	return key, nil
}

// hostKey returns the shared host key, and creates it if it doesn't exist. If the cache doesn't show an existing key
// yet, the creation fails, and the reconcile is retried.
func (r *reconciler) hostKey(ctx context.Context) (*hostKey, error) {
	key, err := readHostKey(ctx, r.client, r.Namespace)
	if key != nil || err != nil {
		return key, err
	}
	made, err := newHostKey()
	if err != nil {
		return nil, err
	}
	immutable := true
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: contract.HostKeySecret,
			Labels: map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount},
		},
		Immutable: &immutable, Type: corev1.SecretTypeOpaque, Data: map[string][]byte{contract.HostKeyField: made},
	}
	if err = r.client.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("creating secret %s: %w", contract.HostKeySecret, err)
	}
	logf.FromContext(ctx).Info("host key for first contacts made", "secret", contract.HostKeySecret)
	line, err := userdata.HostKeyLine(made)
	return &hostKey{pem: made, line: line}, err
}

// newHostKey creates an Ed25519 key, as PEM in OpenSSH's format.
func newHostKey() ([]byte, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("creating a host key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, fmt.Errorf("encoding a host key: %w", err)
	}
	return pem.EncodeToMemory(block), nil
}

// hostKeySince returns when this host key was added to the user data, or false if the user data doesn't have the key.
func hostKeySince(userData *corev1.Secret, line string) (time.Time, bool) {
	since, err := time.Parse(time.RFC3339, userData.Annotations[contract.HostKeyPublishedAnnotation])
	return since, err == nil && line != "" && bytes.Contains(userData.Data[contract.UserDataField], []byte(line))
}
