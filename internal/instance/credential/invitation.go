package credential

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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

// defaultTokenLifetime is how long the token of a command is valid.
const defaultTokenLifetime = 24 * time.Hour

// Invitations publish the commands for hosts that join by themselves.
type Invitations struct {
	Client kubernetes.Interface
	// Namespace of the operator.
	Namespace string
}

// Publish creates what a host that joins by itself needs: the Secret for its calls, the right to read and write this
// Secret, and the Secret with its command. command returns the command for a token. The steps may be repeated: a
// Secret without a command gets one, with another token, and a published command stays.
func (i Invitations) Publish(ctx context.Context, instance *v1alpha1.WindowsInstance,
	command func(token string) (string, error)) error {
	if err := i.openCalls(ctx, instance); err != nil {
		return err
	}
	secrets := i.Client.CoreV1().Secrets(i.Namespace)
	secret := &corev1.Secret{ObjectMeta: i.owned(contract.JoinSecretPrefix, instance)}
	_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var published bool
		if published, err = i.isPublished(ctx, secret.Name); published {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("creating secret %s: %w", secret.Name, err)
	}
	lifetime := defaultTokenLifetime
	if by := instance.Spec.ByItself; by != nil && by.TokenLifetime != nil {
		lifetime = cmp.Or(by.TokenLifetime.Duration, lifetime)
	}
	answer, err := i.Client.CoreV1().ServiceAccounts(i.Namespace).CreateToken(ctx, contract.BootstrapServiceAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: ptr.To(int64(lifetime.Seconds())),
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret",
				Name: secret.Name},
		}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("requesting a token of %s/%s: %w", i.Namespace, contract.BootstrapServiceAccount, err)
	}
	id, err := policy.CredentialIDOf(answer.Status.Token)
	if err != nil {
		return err
	}
	text, err := command(answer.Status.Token)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"stringData": map[string]string{contract.JoinCommandField: text,
		contract.JoinCredentialField: id,
		contract.JoinExpiresField:    answer.Status.ExpirationTimestamp.UTC().Format(time.RFC3339)}})
	if err != nil {
		return fmt.Errorf("encoding the command of instance %s: %w", instance.Name, err)
	}
	_, err = secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("publishing the command in secret %s: %w", secret.Name, err)
	}
	return nil
}

// isPublished reads the API server, because the cache may not show the command yet.
func (i Invitations) isPublished(ctx context.Context, name string) (bool, error) {
	found, err := i.Client.CoreV1().Secrets(i.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()})
	return err == nil && len(found.Items) == 1 && len(found.Items[0].Data[contract.JoinCommandField]) > 0, err
}

// Withdraw deletes the command, and so ends its token. A repeated call does nothing.
func (i Invitations) Withdraw(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	name := contract.JoinSecretPrefix + string(instance.UID)
	err := i.Client.CoreV1().Secrets(i.Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting secret %s: %w", name, err)
	}
	return nil
}

// openCalls creates the Secret for the calls of a host and the host's right to this Secret. They end with the instance.
func (i Invitations) openCalls(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
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
			Name: contract.HostUserPrefix + string(instance.UID)}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating role binding %s: %w", meta.Name, err)
	}
	_, err = i.Client.CoreV1().Secrets(i.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: meta},
		metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating secret %s: %w", meta.Name, err)
	}
	return nil
}

func (i Invitations) owned(prefix string, instance *v1alpha1.WindowsInstance) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: prefix + string(instance.UID), Namespace: i.Namespace,
		OwnerReferences: ownedBy(instance)}
}
