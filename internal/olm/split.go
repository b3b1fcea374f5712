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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	networkPolicy      = "NetworkPolicy" // older releases of OLM refuse bundles with this kind
	configMap          = "ConfigMap"
	mutatingPolicy     = "MutatingAdmissionPolicy" // has the version v1 since Kubernetes 1.36
	mutatingBinding    = "MutatingAdmissionPolicyBinding"
	runtimeClass       = "RuntimeClass"
)

// Parts are the objects of an installation, sorted by the program that applies them.
type Parts struct {
	// Bundle contains the objects that OLM installs unchanged.
	Bundle []*unstructured.Unstructured
	// Own contains the operator's own Role and ClusterRole. OLM gives their rights to the operator's ServiceAccount.
	Own []*unstructured.Unstructured
	// Operator contains the objects that the operator applies, in this order.
	Operator []*unstructured.Unstructured
}

// Manifests returns the objects in the embedded manifests, for an operator in namespace.
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

// Split sorts the objects of an installation into parts. The operator runs in namespace. Split omits the Namespace,
// because users choose or create one for OLM.
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

// `probed` is the policy that the operator uses to test whether the API server enforces the policies. The operator
// writes this policy last, and the API server sees policies in the order of their creation. So if the API server
// enforces this policy, it enforces all policies.
const probed = "windows-operator-secret"

// turn returns an object's position in the order of application. Bindings of rights come last, after the policies. The
// binding of a policy comes before the policy, so that the policy is in force as soon as the API server sees it.
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
			p.Own = append(p.Own, object)
			return nil
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
			return nil // OLM creates the bindings of the operator's own roles
		}
	case "ServiceAccount":
		if operators {
			return nil // OLM creates the service account
		}
	}
	p.Bundle = append(p.Bundle, object)
	return nil
}

// bindsNodes reports whether a binding gives rights to a program that runs on Windows nodes.
func bindsNodes(object *unstructured.Unstructured) (bool, error) {
	subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
	return slices.ContainsFunc(subjects, func(s any) bool {
		subject, _ := s.(map[string]any)
		return slices.Contains([]any{contract.DaemonGroup, contract.HostGroup, contract.CloudNodeServiceAccount,
			contract.BootstrapServiceAccount}, subject["name"])
	}), err
}

// refer changes a binding of a Role in a different namespace. The binding then refers to the ClusterRole that replaces
// the Role, and gets the ClusterRole's name. With its old name, it might collide with a binding of an earlier
// installation: the role of an existing binding can't be changed.
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
