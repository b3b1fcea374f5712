package config_test

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
)

// After an installation with OLM, the operator creates role bindings itself. The user in this test has the operator's
// name and all rights, so that only the policy can refuse.
func TestA66_TheOperatorBindsItsOwnRolesOnlyEachAsItIsMeant(t *testing.T) {
	t.Parallel()
	lab := common(t)
	config := rest.CopyConfig(lab.Admin())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + contract.OperatorNamespace + ":" + contract.OperatorServiceAccount,
		Groups:   []string{"system:masters"},
	}
	operator := connect(t, config)
	own := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: contract.OperatorNamespace,
		Name: contract.OperatorServiceAccount}
	other := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "default"}
	azure := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: contract.OperatorNamespace,
		Name: contract.CloudNodeServiceAccount}
	bootstrapper := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: contract.OperatorNamespace,
		Name: contract.BootstrapServiceAccount}
	openShifts := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: contract.MachineConfigNamespace,
		Name: contract.BootstrapServiceAccount}
	daemons := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: contract.DaemonGroup}
	everybody := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}
	bind := func(namespace, kind, role string, subjects ...rbacv1.Subject) attempt {
		meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "b-"}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		return func(ctx context.Context, c kubernetes.Interface) error {
			var err error
			if namespace == "" {
				_, err = c.RbacV1().ClusterRoleBindings().Create(ctx,
					&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, options)
			} else {
				_, err = c.RbacV1().RoleBindings(namespace).Create(ctx,
					&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}, options)
			}
			return err
		}
	}
	until(t, func(ctx context.Context) bool {
		return refusedByPolicy(bind("", "ClusterRole", "cluster-admin", own)(ctx, operator))
	})
	const prefix = contract.OperatorServiceAccount + "-"
	tries(t, operator, map[string]attempt{
		"its rights in openshift-config": bind(contract.ConfigNamespace, "ClusterRole", prefix+contract.ConfigNamespace, own),
		"its rights in kube-system":      bind("kube-system", "ClusterRole", prefix+"kube-system", own),
		"daemons' rights":                bind("", "ClusterRole", "system-wicd-nodes", daemons),
		"daemons' events":                bind("default", "ClusterRole", "windows-daemon-events-default", daemons),
		"what daemons read":              bind(contract.OperatorNamespace, "Role", contract.ServicesReaderRole, daemons),
		"the node manager's rights":      bind("", "ClusterRole", "windows-cloud-node", azure),
		"requests of hosts that join":    bind("", "ClusterRole", "system:node-bootstrapper", bootstrapper),
	}, func(err error) bool { return err == nil })
	tries(t, operator, map[string]attempt{
		"cluster-admin":                          bind("", "ClusterRole", "cluster-admin", own),
		"cluster-admin in a namespace":           bind("default", "ClusterRole", "cluster-admin", own),
		"Secrets of one namespace in another":    bind("kube-system", "ClusterRole", prefix+contract.MachineConfigNamespace, own),
		"its rights in a namespace of a tenant":  bind("default", "ClusterRole", prefix+contract.ConfigNamespace, own),
		"its rights everywhere":                  bind("", "ClusterRole", prefix+contract.MachineConfigNamespace, own),
		"its rights for another account":         bind(contract.ConfigNamespace, "ClusterRole", prefix+contract.ConfigNamespace, other),
		"its rights for itself and another":      bind(contract.ConfigNamespace, "ClusterRole", prefix+contract.ConfigNamespace, own, other),
		"daemons' rights for everybody":          bind("", "ClusterRole", "system-wicd-nodes", everybody),
		"daemons' rights for itself":             bind("", "ClusterRole", "system-wicd-nodes", own),
		"the node manager's rights for daemons":  bind("", "ClusterRole", "windows-cloud-node", daemons),
		"the node manager's rights for itself":   bind("", "ClusterRole", "windows-cloud-node", own),
		"requests of hosts for another account":  bind("", "ClusterRole", "system:node-bootstrapper", openShifts),
		"requests of hosts for itself":           bind("", "ClusterRole", "system:node-bootstrapper", own),
		"more for hosts that join":               bind("", "ClusterRole", "system-wicd-nodes", bootstrapper),
		"daemons' events in the wrong namespace": bind("kube-system", "ClusterRole", "windows-daemon-events-default", daemons),
	}, refusedByPolicy)
}
