package openshift

import (
	"context"
	"fmt"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// OperatorCondition returns the kind of the object that operators use to tell OLM whether an upgrade is safe.
func OperatorCondition() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "operators.coreos.com", Version: "v2", Kind: "OperatorCondition"}
}

// InstallOLM simulates OLM for the operator: it creates the OperatorCondition with this name, and the right to read
// and write it. (OLM's definition of the type isn't in our modules; this is a reduced one.) The operator's
// namespace must exist. A repeated call changes nothing.
func InstallOLM(ctx context.Context, config *rest.Config, name string) error {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return err
	}
	if _, err = cluster.InstallCRDs(ctx, config,
		cluster.CRDOptions{Paths: []string{filepath.Join(root, "lab", "openshift", "olm")}}); err != nil {
		return fmt.Errorf("installing OLM's OperatorCondition: %w", err)
	}
	c, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	meta := metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: name}
	condition := &unstructured.Unstructured{}
	condition.SetGroupVersionKind(OperatorCondition())
	condition.SetNamespace(meta.Namespace)
	condition.SetName(name)
	for _, object := range []client.Object{
		condition,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{OperatorCondition().Group}, Resources: []string{"operatorconditions"},
			ResourceNames: []string{name}, Verbs: []string{"get", "update", "patch"},
		}}},
		&rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{
				{Kind: rbacv1.ServiceAccountKind, Namespace: contract.OperatorNamespace,
					Name: contract.OperatorServiceAccount},
			}},
	} {
		if err = create(ctx, c, object); err != nil {
			return err
		}
	}
	return nil
}
