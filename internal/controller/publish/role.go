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

// publishRole lets the daemons read the published manifests by name, and no other ConfigMap. The operator may grant it because it has the same rights
// on all ConfigMaps of its namespace.
func (p *publisher) publishRole(ctx context.Context, desired blueprint.Desired) error {
	names, err := p.readable(ctx, desired)
	if err != nil {
		return err
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: names, Verbs: []string{"list", "watch"}}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: contract.ServicesReaderRole}}
	err = p.client.Get(ctx, client.ObjectKeyFromObject(role), role)
	switch {
	case apierrors.IsNotFound(err):
		role.Labels, role.Rules = map[string]string{managedByLabel: contract.OperatorServiceAccount}, want
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
	logf.FromContext(ctx).Info("daemons may read the services manifests", "role", contract.ServicesReaderRole, "configMaps", names)
	return nil
}

// readable are the manifests that daemons may read, sorted: the current one, and older ones that are still there and are what their names say.
func (p *publisher) readable(ctx context.Context, desired blueprint.Desired) ([]string, error) {
	list := &corev1.ConfigMapList{}
	if err := p.client.List(ctx, list, client.InNamespace(p.Namespace)); err != nil {
		return nil, fmt.Errorf("listing ConfigMaps: %w", err)
	}
	names := []string{desired.ConfigMapName()}
	for i := range list.Items {
		c := &list.Items[i]
		if strings.HasPrefix(c.Name, contract.ServicesConfigMapPrefix) && contentName(c.Name) && c.DeletionTimestamp.IsZero() && !isForged(c) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
