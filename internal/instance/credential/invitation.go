package credential

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// defaultTokenLifetime is the lifetime of the token in a command, unless the instance sets a lifetime.
const defaultTokenLifetime = 24 * time.Hour

// Invitations publishes the commands for hosts that join by themselves.
type Invitations struct {
	Client kubernetes.Interface
	// Namespace is the operator's namespace.
	Namespace string
}

// Publish creates the objects for a host that joins by itself: the Secret for its calls, its right to read and write
// this Secret, and the Secret with its command. command returns the command for a token. If a command is already
// published, Publish doesn't change it.
func (i Invitations) Publish(ctx context.Context, instance *v1alpha1.WindowsInstance,
	command func(token string) (string, error)) error {
	if err := i.OpenCalls(ctx, instance); err != nil {
		return err
	}
	secret, err := i.secret(ctx, i.owned(contract.JoinSecretPrefix, instance))
	if err != nil || len(secret.Data[contract.JoinCommandField]) > 0 {
		return err
	}
	lifetime := defaultTokenLifetime
	if by := instance.Spec.ByItself; by != nil && by.TokenLifetime != nil {
		lifetime = cmp.Or(by.TokenLifetime.Duration, lifetime)
	}
	token, id, expires, err := i.token(ctx, secret.Name, lifetime)
	if err != nil {
		return err
	}
	text, err := command(token)
	if err != nil {
		return err
	}
	return i.record(ctx, secret.Name, map[string]string{contract.JoinCommandField: text,
		contract.JoinCredentialField: id, contract.JoinExpiresField: expires.UTC().Format(time.RFC3339)})
}

// MachinesToken returns the token in the user data of Machines. It replaces the token after half of its lifetime. The
// previous token stays valid, because Machines may still boot with it.
func (i Invitations) MachinesToken(ctx context.Context, now time.Time) (string, error) {
	secret, err := i.find(ctx, contract.MachinesJoinSecret)
	if secret == nil && err == nil {
		secret, err = i.secret(ctx, metav1.ObjectMeta{Name: contract.MachinesJoinSecret, Namespace: i.Namespace})
	}
	if err != nil {
		return "", err
	}
	due, err := time.Parse(time.RFC3339, string(secret.Data[contract.JoinExpiresField]))
	if token := secret.Data[contract.JoinTokenField]; err == nil && now.Before(due) && len(token) > 0 {
		return string(token), nil
	}
	token, id, expires, err := i.token(ctx, secret.Name, defaultTokenLifetime)
	if err != nil {
		return "", err
	}
	ids := append(strings.Fields(string(secret.Data[contract.JoinCredentialField])), id)
	return token, i.record(ctx, secret.Name, map[string]string{contract.JoinTokenField: token,
		contract.JoinCredentialField: strings.Join(ids[max(0, len(ids)-2):], " "),
		contract.JoinExpiresField:    now.Add(expires.Sub(now) / 2).UTC().Format(time.RFC3339)})
}

// secret creates a Secret, or returns the existing one.
func (i Invitations) secret(ctx context.Context, meta metav1.ObjectMeta) (*corev1.Secret, error) {
	secret, err := i.Client.CoreV1().Secrets(i.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta},
		metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if secret, err = i.find(ctx, meta.Name); secret == nil && err == nil {
			err = errors.New("it was deleted concurrently")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating secret %s: %w", meta.Name, err)
	}
	return secret, nil
}

// find reads a Secret from the API server, because the cache may not show it yet. It returns nil if there is none.
func (i Invitations) find(ctx context.Context, name string) (*corev1.Secret, error) {
	found, err := i.Client.CoreV1().Secrets(i.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	if err != nil || len(found.Items) == 0 {
		return nil, err
	}
	return &found.Items[0], nil
}

// token requests a token that becomes invalid when a Secret is deleted.
func (i Invitations) token(ctx context.Context, secret string, lifetime time.Duration) (token, id string,
	expires time.Time, err error) {
	answer, err := i.Client.CoreV1().ServiceAccounts(i.Namespace).CreateToken(ctx, contract.BootstrapServiceAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To(int64(lifetime.Seconds())),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret},
		}}, metav1.CreateOptions{})
	if err != nil {
		return "", "", expires, fmt.Errorf("requesting a token of %s/%s: %w", i.Namespace,
			contract.BootstrapServiceAccount, err)
	}
	id, err = policy.CredentialIDOf(answer.Status.Token)
	return answer.Status.Token, id, answer.Status.ExpirationTimestamp.Time, err
}

func (i Invitations) record(ctx context.Context, name string, values map[string]string) error {
	patch, err := json.Marshal(map[string]any{"stringData": values})
	if err == nil {
		_, err = i.Client.CoreV1().Secrets(i.Namespace).Patch(ctx, name, types.MergePatchType, patch,
			metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing secret %s: %w", name, err)
	}
	return nil
}

// Withdraw deletes the Secret with the host's command, which revokes its token. A repeated call does nothing.
func (i Invitations) Withdraw(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	name := contract.JoinSecretPrefix + string(instance.UID)
	err := i.Client.CoreV1().Secrets(i.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting secret %s: %w", name, err)
	}
	return nil
}

// OpenCalls creates the Secret for the calls of a host, and the host's right to read and write this Secret. Both are
// deleted with the instance. A repeated call does nothing.
func (i Invitations) OpenCalls(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	meta := i.owned(contract.CallSecretPrefix, instance)
	_, err := i.Client.RbacV1().Roles(i.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
			ResourceNames: []string{meta.Name}, Verbs: []string{"list", "watch", "patch"}}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating role %s: %w", meta.Name, err)
	}
	_, err = i.Client.RbacV1().RoleBindings(i.Namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind,
			Name: contract.HostUserPrefix + policy.HostID(instance)}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating role binding %s: %w", meta.Name, err)
	}
	_, err = i.secret(ctx, meta)
	return err
}

func (i Invitations) owned(prefix string, instance *v1alpha1.WindowsInstance) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: prefix + policy.HostID(instance), Namespace: i.Namespace,
		OwnerReferences: ownedBy(instance)}
}
