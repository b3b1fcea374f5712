package main

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// rulesOf returns the rules of roles, in the whole cluster and in the operator's namespace.
func rulesOf(roles []*unstructured.Unstructured) (cluster, namespaced []rbacv1.PolicyRule, err error) {
	for _, object := range roles {
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
			return nil, nil, err
		}
		if role.Kind == "ClusterRole" {
			cluster = append(cluster, role.Rules...)
		} else {
			namespaced = append(namespaced, role.Rules...)
		}
	}
	return cluster, namespaced, nil
}

// rightsToApply returns the rights to apply objects, in the whole cluster and in the operator's namespace. The rights
// name these objects, and the roles that these objects bind. The right to create can't be limited by name, so the
// policy windows-operator-binding limits which roles are bound where.
func rightsToApply(objects []*unstructured.Unstructured) (cluster, namespaced []rbacv1.PolicyRule, err error) {
	for _, object := range objects {
		rules := &cluster
		switch object.GetKind() {
		case "NetworkPolicy":
			rules = &namespaced
		case "ConfigMap":
			// To create a policy that reads ConfigMaps, the operator needs the right to read ConfigMaps named "*". To
			// create the policy's binding, it needs the right to read the bound ConfigMap.
			rules = &namespaced
			namespaced = allow(namespaced, "", "configmaps", object.GetName(), "get")
			cluster = allow(cluster, "", "configmaps", "*", "get")
		}
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		*rules = allow(*rules, plural.Group, plural.Resource, "", "create")
		*rules = allow(*rules, plural.Group, plural.Resource, object.GetName(), "patch")
		if object.GetKind() != "RoleBinding" && object.GetKind() != "ClusterRoleBinding" {
			continue
		}
		kind, _, err := unstructured.NestedString(object.Object, "roleRef", "kind")
		if err != nil {
			return nil, nil, err
		}
		name, _, err := unstructured.NestedString(object.Object, "roleRef", "name")
		if err != nil {
			return nil, nil, err
		}
		cluster = allow(cluster, rbacv1.GroupName, strings.ToLower(kind)+"s", name, "bind")
	}
	return cluster, namespaced, nil
}

// allow adds a right to rules. Without a name, the right is for all objects.
func allow(rules []rbacv1.PolicyRule, group, resource, name, verb string) []rbacv1.PolicyRule {
	for i, r := range rules {
		if r.APIGroups[0] != group || r.Resources[0] != resource || r.Verbs[0] != verb {
			continue
		}
		if name != "" && !slices.Contains(r.ResourceNames, name) {
			rules[i].ResourceNames = append(r.ResourceNames, name)
		}
		return rules
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
	if name != "" {
		rule.ResourceNames = []string{name}
	}
	return append(rules, rule)
}
