package olm

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/windows-nodes/wmco/config"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	role               = "Role"
	clusterRole        = "ClusterRole"
	roleBinding        = "RoleBinding"
	clusterRoleBinding = "ClusterRoleBinding"
	policy             = "ValidatingAdmissionPolicy"
	policyBinding      = "ValidatingAdmissionPolicyBinding"
	networkPolicy      = "NetworkPolicy" // older releases of OLM refuse a bundle with one
	configMap          = "ConfigMap"
	mutatingPolicy     = "MutatingAdmissionPolicy" // as of Kubernetes 1.36
	mutatingBinding    = "MutatingAdmissionPolicyBinding"
	runtimeClass       = "RuntimeClass"
)

// Parts are the objects of an install, sorted by who applies them.
type Parts struct {
	// Bundle are those that OLM installs as they stand.
	Bundle []*unstructured.Unstructured
	// Cluster and Namespaced are the operator's own rights, which OLM binds to its ServiceAccount.
	Cluster, Namespaced []rbacv1.PolicyRule
	// Operator are those that the operator applies, in this order.
	Operator []*unstructured.Unstructured
}

// Manifests are the objects of the manifests in this program, for an operator in namespace.
func Manifests(namespace string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(config.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "kustomization.yaml" {
			return err
		}
		data, err := config.Files.ReadFile(path)
		if err != nil {
			return err
		}
		data = bytes.ReplaceAll(data, []byte(contract.OperatorNamespace), []byte(namespace))
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data))
		for {
			object := &unstructured.Unstructured{}
			if err = decoder.Decode(object); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("reading %s: %w", path, err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	})
	return objects, err
}

// Split sorts the objects of an install for an operator in namespace. The Namespace is in no part,
// since OLM is given one.
func Split(objects []*unstructured.Unstructured, namespace string) (Parts, error) {
	p := Parts{}
	for _, object := range objects {
		if err := p.add(object.DeepCopy(), namespace); err != nil {
			return Parts{}, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	slices.SortStableFunc(p.Operator, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(turn(a), turn(b)), strings.Compare(a.GetKind(), b.GetKind()),
			strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	return p, nil
}

// probed is the policy by which the operator finds out whether policies are enforced. The API server
// sees policies in the order in which they were written, so when it enforces the last, it enforces all.
const probed = "windows-operator-secret"

// turn orders what the operator applies: nothing is bound before the policies are enforced. What binds
// a policy comes before the policy, so that each is in force as soon as it is seen.
func turn(object *unstructured.Unstructured) int {
	order := []string{networkPolicy, policyBinding, policy, configMap, runtimeClass, mutatingPolicy, mutatingBinding,
		roleBinding, clusterRoleBinding}
	turn := 2 * slices.Index(order, object.GetKind())
	if object.GetKind() == policy && object.GetName() == probed {
		turn++
	}
	return turn
}

func (p *Parts) add(object *unstructured.Unstructured, namespace string) error {
	foreign := object.GetNamespace() != "" && object.GetNamespace() != namespace
	operators := object.GetName() == contract.OperatorServiceAccount
	switch object.GetKind() {
	case "Namespace":
		return nil
	case policy, policyBinding, networkPolicy, mutatingPolicy, mutatingBinding, configMap, runtimeClass:
		p.Operator = append(p.Operator, object)
		return nil
	case role, clusterRole:
		if operators && !foreign {
			return p.grant(object)
		}
		if foreign {
			object.SetKind(clusterRole)
			object.SetName(object.GetName() + "-" + object.GetNamespace())
			object.SetNamespace("")
		}
	case roleBinding, clusterRoleBinding:
		ofNodes, err := bindsNodes(object)
		if err != nil {
			return err
		}
		switch {
		case foreign:
			if err := refer(object); err != nil {
				return err
			}
			p.Operator = append(p.Operator, object)
			return nil
		case ofNodes:
			p.Operator = append(p.Operator, object)
			return nil
		case operators:
			return nil // OLM binds them
		}
	case "ServiceAccount":
		if operators {
			return nil // OLM makes it
		}
	}
	p.Bundle = append(p.Bundle, object)
	return nil
}

// grant adds a role to the operator's own rights.
func (p *Parts) grant(object *unstructured.Unstructured) error {
	of := &rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, of); err != nil {
		return err
	}
	if object.GetKind() == clusterRole {
		p.Cluster = append(p.Cluster, of.Rules...)
	} else {
		p.Namespaced = append(p.Namespaced, of.Rules...)
	}
	return nil
}

// bindsNodes reports whether a binding gives rights to what runs on Windows nodes.
func bindsNodes(object *unstructured.Unstructured) (bool, error) {
	subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
	return slices.ContainsFunc(subjects, func(s any) bool {
		subject, _ := s.(map[string]any)
		return slices.Contains([]any{contract.DaemonGroup, contract.CloudNodeServiceAccount,
			contract.BootstrapServiceAccount}, subject["name"])
	}), err
}

// refer lets a binding refer to the ClusterRole that takes the place of its Role. It gets that one's
// name, too: what a binding refers to can't be changed, and there may be one of another install.
func refer(binding *unstructured.Unstructured) error {
	name, _, err := unstructured.NestedString(binding.Object, "roleRef", "name")
	if err != nil {
		return err
	}
	name += "-" + binding.GetNamespace()
	binding.SetName(name)
	return errors.Join(
		unstructured.SetNestedField(binding.Object, clusterRole, "roleRef", "kind"),
		unstructured.SetNestedField(binding.Object, name, "roleRef", "name"))
}

// Rights are the rights to apply objects, in the whole cluster and in the operator's namespace:
// nothing but these objects, and binding nothing but the roles that they bind. To create can't be
// limited by name, so the policy windows-operator-binding limits what is bound where.
func Rights(objects []*unstructured.Unstructured) (cluster, namespaced []rbacv1.PolicyRule, err error) {
	for _, object := range objects {
		rules := &cluster
		switch object.GetKind() {
		case networkPolicy:
			rules = &namespaced
		case configMap:
			// Who lets a policy read it must be allowed to: of all by the name "*", which nothing has.
			rules = &namespaced
			namespaced = allow(namespaced, "", "configmaps", object.GetName(), "get")
			cluster = allow(cluster, "", "configmaps", "*", "get")
		}
		plural, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		*rules = allow(*rules, plural.Group, plural.Resource, "", "create")
		*rules = allow(*rules, plural.Group, plural.Resource, object.GetName(), "patch")
		if object.GetKind() != roleBinding && object.GetKind() != clusterRoleBinding {
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

// allow adds a right to rules. An empty name is every name.
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
