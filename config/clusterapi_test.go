package config_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/windows-nodes/wmco/internal/contract"
)

// One manifest is applied separately, because its namespace does not exist in every cluster. It must match the
// generated manifest.
func TestUserDataMayBeWrittenInBothNamespacesAlike(t *testing.T) {
	t.Parallel()
	rules, _ := granted(t)
	secrets := slices.DeleteFunc(slices.Clone(rules[place{contract.MachineAPINamespace,
		contract.OperatorServiceAccount}]), func(rule rbacv1.PolicyRule) bool {
		return !slices.Equal(rule.Resources, []string{"secrets"})
	})
	if other := rules[place{contract.ClusterAPINamespace, contract.OperatorServiceAccount}]; len(secrets) == 0 ||
		!equality.Semantic.DeepEqual(other, secrets) {
		t.Errorf("in %s the operator may %v, and in %s %v", contract.MachineAPINamespace, secrets,
			contract.ClusterAPINamespace, other)
	}
}
