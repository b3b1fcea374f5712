package config_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
)

// write returns a merge patch of a Secret in the operator's namespace.
func write(name, patch string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Secrets(contract.OperatorNamespace).Patch(ctx, name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		return err
	}
}

func TestA86_AHostWritesItsOwnAnswersOnly(t *testing.T) {
	t.Parallel()
	lab := common(t)
	admin := connect(t, lab.Admin())
	own, other := contract.CallSecretPrefix+"one", contract.CallSecretPrefix+"two"
	for _, name := range []string{own, other} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: name},
			Data: map[string][]byte{contract.CallRequestField: []byte("{}")}}
		if _, err := admin.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The role gives more rights than the operator would, so that only the policy can refuse.
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "all-secrets"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
		Kind: "Role", Name: role.Name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind,
		Name: contract.HostUserPrefix + "one"}}}
	if _, err := admin.RbacV1().Roles(role.Namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().RoleBindings(role.Namespace).Create(t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	host := as(t, lab, contract.HostUserPrefix+"one", contract.HostGroup)
	// The API server enforces new rights and policies after a moment.
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) { return refusedByPolicy(write(other, `{}`)(ctx, host)), nil })
	if err != nil {
		t.Fatal(err)
	}
	tries(t, host, map[string]attempt{
		"answers":         write(own, `{"data":{"host":"e30="}}`),
		"answers at most": write(own, `{"data":{"host":"`+strings.Repeat("AAAA", 512<<10/3)+`"}}`),
	}, func(err error) bool { return err == nil })
	tries(t, host, map[string]attempt{
		"answers for another host": write(other, `{"data":{"host":"e30="}}`),
		"writes its own request":   write(own, `{"data":{"request":"AAAA"}}`),
		"deletes its request":      write(own, `{"data":{"request":null}}`),
		"adds a field":             write(own, `{"data":{"other":"AAAA"}}`),
		"adds a field as text":     write(own, `{"stringData":{"other":"x"}}`),
		"answers too much":         write(own, `{"data":{"host":"`+strings.Repeat("AAAA", 200<<10)+`"}}`),
		"freezes the Secret":       write(own, `{"immutable":true}`),
		"keeps the Secret":         write(own, `{"metadata":{"finalizers":["example.com/stay"]}}`),
		"labels the Secret":        write(own, `{"metadata":{"labels":{"a":"b"}}}`),
		"creates a Secret": func(ctx context.Context, c kubernetes.Interface) error {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: contract.CallSecretPrefix + "three"}}
			_, err := c.CoreV1().Secrets(contract.OperatorNamespace).Create(ctx, secret, metav1.CreateOptions{})
			return err
		},
		"deletes its Secret": func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().Secrets(contract.OperatorNamespace).Delete(ctx, own, metav1.DeleteOptions{})
		},
	}, refusedByPolicy)
}
