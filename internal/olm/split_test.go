package olm_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/olm"
)

func split(t *testing.T, namespace string) olm.Parts {
	t.Helper()
	all, err := olm.Manifests(namespace)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := olm.Split(all, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

func TestA66_NothingThatOLMDropsOrMovesIsLeftToIt(t *testing.T) {
	t.Parallel()
	for _, object := range split(t, contract.OperatorNamespace).Bundle {
		if ns := object.GetNamespace(); ns != "" && ns != contract.OperatorNamespace {
			t.Errorf("OLM would move %s %s out of %s", object.GetKind(), object.GetName(), ns)
		}
		if slices.Contains([]string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "NetworkPolicy",
			"Namespace"}, object.GetKind()) {
			t.Errorf("OLM does not install %s %s", object.GetKind(), object.GetName())
		}
	}
}

func TestA66_DaemonsGetRightsAfterThePoliciesOnly(t *testing.T) {
	t.Parallel()
	parts := split(t, contract.OperatorNamespace)
	bound, last := false, ""
	for _, object := range parts.Operator {
		if object.GetKind() == "ValidatingAdmissionPolicy" {
			last = object.GetName()
		}
		if object.GetKind() == "ValidatingAdmissionPolicyBinding" && last != "" {
			t.Errorf("%s is created after the policy %s", object.GetName(), last)
		}
		binds := object.GetKind() == "RoleBinding" || object.GetKind() == "ClusterRoleBinding"
		if bound && !binds {
			t.Errorf("%s %s is created after a binding", object.GetKind(), object.GetName())
		}
		bound = bound || binds
	}
	if last != "windows-operator-secret" {
		t.Errorf("the policy of the probe is created before %s", last)
	}
	for _, object := range parts.Bundle {
		if subjects, _, _ := unstructured.NestedSlice(object.Object, "subjects"); len(subjects) > 0 {
			t.Errorf("OLM would bind %s %s: %v", object.GetKind(), object.GetName(), subjects)
		}
	}
}

func TestA66_EachBindingRefersToARoleThatIsThere(t *testing.T) {
	t.Parallel()
	parts := split(t, contract.OperatorNamespace)
	// These roles are in no manifest, because the operator creates the Role and the API server creates the ClusterRole.
	roles := map[string]bool{"Role/" + contract.ServicesReaderRole: true, "ClusterRole/system:node-bootstrapper": true}
	for _, object := range parts.Bundle {
		roles[object.GetKind()+"/"+object.GetName()] = true
	}
	for _, object := range parts.Operator {
		ref, found, err := unstructured.NestedStringMap(object.Object, "roleRef")
		if err != nil {
			t.Fatal(err)
		}
		if found && !roles[ref["kind"]+"/"+ref["name"]] {
			t.Errorf("%s %s refers to the %s %s, which is not one of %v",
				object.GetKind(), object.GetName(), ref["kind"], ref["name"], slices.Sorted(maps.Keys(roles)))
		}
	}
}

func TestA66_AnotherNamespaceIsInEveryObject(t *testing.T) {
	t.Parallel()
	for _, object := range split(t, "windows").Operator {
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), contract.OperatorNamespace) {
			t.Errorf("%s %s names %s", object.GetKind(), object.GetName(), contract.OperatorNamespace)
		}
	}
}

// OLM doesn't know the objects that the operator applied, so it doesn't delete them. docs/olm.md must list commands
// that delete them.
func TestA66_WhatTheOperatorAppliesIsDeletedWithIt(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/olm.md")
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`oc delete ([a-z,]+) (-A )?-l ` + contract.ManagedByLabel + "=" + contract.OperatorServiceAccount)
	everywhere := map[string]bool{}
	for _, command := range marked.FindAllStringSubmatch(string(page), -1) {
		for kind := range strings.SplitSeq(command[1], ",") {
			everywhere[kind] = command[2] != ""
		}
	}
	for _, object := range split(t, contract.OperatorNamespace).Operator {
		namespaced := object.GetNamespace() != ""
		if all, deleted := everywhere[strings.ToLower(object.GetKind())]; !deleted || all != namespaced {
			t.Errorf("%s %s/%s stays", object.GetKind(), object.GetNamespace(), object.GetName())
		}
	}
}
