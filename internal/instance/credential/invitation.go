package credential

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// joinLifetime is the lifetime of the token in a command, unless the instance sets a lifetime.
const joinLifetime = 24 * time.Hour

// Publish creates the objects for a host that joins by itself: the Secret for the operator's calls, the host's right to
// read and write this Secret, and the Secret with the host's command. The function `command` converts a token to a
// command. If a command is already published, Publish doesn't change it.
func (i Issuer) Publish(ctx context.Context, instance *v1alpha1.WindowsInstance,
	command func(token string) (string, error)) error {
	if err := i.OpenCalls(ctx, instance); err != nil {
		return err
	}
	secret, err := i.secret(ctx, &corev1.Secret{ObjectMeta: i.owned(joinSecret(instance), instance)})
	if err != nil || len(secret.Data[contract.JoinCommandField]) > 0 {
		return err
	}
	token, err := i.token(ctx, secret.Name, cmp.Or(instance.Spec.ByItself.TokenLifetime.Duration, joinLifetime))
	if err != nil {
		return err
	}
	text, err := command(token.Text)
	if err != nil {
		return err
	}
	return i.record(ctx, secret.Name, map[string]string{contract.JoinCommandField: text,
		contract.JoinCredentialField: token.ID, contract.JoinExpiresField: token.Expires.UTC().Format(time.RFC3339)})
}

// Withdraw deletes the Secret with the host's command. This revokes the command's token. A repeated call does nothing.
func (i Issuer) Withdraw(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	return i.remove(ctx, joinSecret(instance))
}

// joinSecret returns the name of the Secret with the command of an instance's host.
func joinSecret(instance *v1alpha1.WindowsInstance) string {
	return contract.JoinSecretPrefix + string(instance.UID)
}

// MachinesToken returns the token in the user data of Machines. It replaces the token after half of its lifetime. The
// previous token stays valid, because Machines may still boot with it.
func (i Issuer) MachinesToken(ctx context.Context, now time.Time) (string, error) {
	secret, err := i.find(ctx, contract.MachinesJoinSecret)
	if secret == nil && err == nil {
		secret, err = i.secret(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: contract.MachinesJoinSecret}})
	}
	if err != nil {
		return "", err
	}
	due, err := time.Parse(time.RFC3339, string(secret.Data[contract.JoinExpiresField]))
	if token := secret.Data[contract.JoinTokenField]; err == nil && now.Before(due) && len(token) > 0 {
		return string(token), nil
	}
	token, err := i.token(ctx, secret.Name, joinLifetime)
	if err != nil {
		return "", err
	}
	ids := append(strings.Fields(string(secret.Data[contract.JoinCredentialField])), token.ID)
	return token.Text, i.record(ctx, secret.Name, map[string]string{contract.JoinTokenField: token.Text,
		contract.JoinCredentialField: strings.Join(ids[max(0, len(ids)-2):], " "),
		contract.JoinExpiresField:    now.Add(token.Expires.Sub(now) / 2).UTC().Format(time.RFC3339)})
}

func (i Issuer) record(ctx context.Context, name string, values map[string]string) error {
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

// OpenCalls creates the Secret for the operator's calls to a host, and the host's right to read and write this Secret.
// Both are deleted with the instance. A repeated call does nothing.
func (i Issuer) OpenCalls(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	id := policy.HostID(instance)
	meta := i.owned(contract.CallSecretPrefix+id, instance)
	// Create the Secret first. If a host may read the Secret but finds none, it leaves, as if its instance were gone.
	_, err := i.Client.CoreV1().Secrets(i.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta},
		metav1.CreateOptions{})
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = i.Client.RbacV1().Roles(i.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"},
				ResourceNames: []string{meta.Name}, Verbs: []string{"list", "watch", "patch"}}}},
			metav1.CreateOptions{})
	}
	if err == nil || apierrors.IsAlreadyExists(err) {
		_, err = i.Client.RbacV1().RoleBindings(i.Namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind,
				Name: contract.HostUserPrefix + id}}}, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating secret %s and the host's right to it: %w", meta.Name, err)
	}
	return nil
}
