package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// publishRole lets the daemons read the published manifests and their Secrets by name, and no other
// ConfigMap or Secret. The operator may grant it because it has the same rights in its namespace;
// an admission policy keeps it from granting more.
func (p *publisher) publishRole(ctx context.Context, desired blueprint.Desired) error {
	configMaps, secrets, err := p.readable(ctx, desired)
	if err != nil {
		return err
	}
	rule := func(resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: names,
			Verbs: verbs}
	}
	// A manifest that is not there, or not what it should be, is watched for; a Secret is there
	// before its manifest. What is latest is watched by all.
	want := []rbacv1.PolicyRule{rule("configmaps", configMaps, "list", "watch"), rule("secrets", secrets, "list"),
		rule("secrets", []string{contract.LatestSecret}, "list", "watch")}
	if len(p.PayloadSource.URLs) > 0 {
		want = append(want, rule("configmaps", []string{contract.PayloadSourceConfigMap}, "list"))
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: contract.ServicesReaderRole}}
	err = p.client.Get(ctx, client.ObjectKeyFromObject(role), role)
	switch {
	case apierrors.IsNotFound(err):
		role.Labels, role.Rules = map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount}, want
		err = p.client.Create(ctx, role)
	case err == nil && !equality.Semantic.DeepEqual(role.Rules, want):
		role = role.DeepCopy()
		role.Rules = want
		err = p.client.Update(ctx, role)
	case err == nil:
		return nil
	}
	if err != nil {
		return fmt.Errorf("keeping Role %s: %w", contract.ServicesReaderRole, err)
	}
	logf.FromContext(ctx).Info("daemons may read the services manifests", "role", contract.ServicesReaderRole,
		"configMaps", configMaps, "secrets", secrets)
	return nil
}

// readable are the names of the manifests and of the Secrets that daemons may read, each sorted:
// the current ones, and older ones that are still there and are what their names say.
func (p *publisher) readable(ctx context.Context, desired blueprint.Desired) (configMaps, secrets []string, err error) {
	list, inside := &corev1.ConfigMapList{}, &corev1.SecretList{}
	if err = p.client.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing ConfigMaps: %w", err)
	}
	if err = p.client.List(ctx, inside, client.InNamespace(p.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing Secrets: %w", err)
	}
	configMaps, secrets = []string{desired.ConfigMapName()}, []string{desired.SecretName()}
	secretDigests := map[string]string{}
	for i := range list.Items {
		c := &list.Items[i]
		if !strings.HasPrefix(c.Name, contract.ServicesConfigMapPrefix) || !contentName(c.Name) ||
			!c.DeletionTimestamp.IsZero() {
			continue
		}
		if isGenuine(c) {
			configMaps, secretDigests[c.Name] = append(configMaps, c.Name), c.Data[contract.KeyConfidential]
		}
	}
	for i := range inside.Items {
		s := &inside.Items[i]
		if digest, ok := secretDigests[s.Name]; ok && s.DeletionTimestamp.IsZero() && belongs(s, digest) {
			secrets = append(secrets, s.Name)
		}
	}
	slices.Sort(configMaps)
	slices.Sort(secrets)
	return slices.Compact(configMaps), slices.Compact(secrets), nil
}
