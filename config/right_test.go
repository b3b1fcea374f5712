package config_test

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
)

// place is a role and the namespace where it applies. An empty namespace means everywhere.
type place struct{ namespace, role string }

// granted returns the rules and the subjects of each role.
func granted(t *testing.T) (rules map[place][]rbacv1.PolicyRule, subjects map[place][]rbacv1.Subject) {
	t.Helper()
	rules, subjects = map[place][]rbacv1.PolicyRule{}, map[place][]rbacv1.Subject{}
	for _, m := range manifests(t) {
		switch o := m.object.(type) {
		case *rbacv1.ClusterRole:
			rules[place{"", o.Name}] = o.Rules
		case *rbacv1.Role:
			rules[place{o.Namespace, o.Name}] = o.Rules
		case *rbacv1.ClusterRoleBinding:
			subjects[place{"", o.RoleRef.Name}] = o.Subjects
		case *rbacv1.RoleBinding:
			subjects[place{o.Namespace, o.RoleRef.Name}] = o.Subjects
		}
	}
	return rules, subjects
}

func TestEveryRoleIsGivenToSomebodyAndNothingElseIs(t *testing.T) {
	t.Parallel()
	rules, subjects := granted(t)
	aggregated := place{"", "windows-bootstrap-provider-objects"} // Cluster API's role aggregates this role
	for where := range rules {
		if len(subjects[where]) == 0 && where != aggregated {
			t.Errorf("the role %v is not bound", where)
		}
	}
	written := place{contract.OperatorNamespace, contract.ServicesReaderRole} // the operator writes this role
	builtIn := place{"", "system:node-bootstrapper"}                          // the API server has this role
	for where := range subjects {
		if _, known := rules[where]; !known && where != written && where != builtIn {
			t.Errorf("the role %v is bound but does not exist", where)
		}
	}
	operator := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: contract.OperatorNamespace,
		Name: contract.OperatorServiceAccount}
	for where, who := range subjects {
		if operators(where) && !slices.Equal(who, []rbacv1.Subject{operator}) {
			t.Errorf("the operator's role %v is bound to %v", where, who)
		}
	}
}

func TestA36_TheOperatorsRightsNameWhatCanBeNamed(t *testing.T) {
	t.Parallel()
	rules, _ := granted(t)
	for where, all := range rules {
		if !operators(where) {
			continue
		}
		for _, rule := range all {
			checkRule(t, where, rule)
		}
	}
}

// operators reports whether a role is the operator's.
func operators(where place) bool {
	return where.role == contract.OperatorServiceAccount || where.role == contract.OperatorServiceAccount+"-kubernetes"
}

func TestTheTableOfRightsNamesAllThatTheOperatorHas(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Rights of each identity")
	table, _, _ = strings.Cut(table, "## Attacks")
	words := map[string]string{"certificatesigningrequests": "certificate request", "pods/eviction": "eviction",
		"certificatesigningrequests/approval": "approval", "serviceaccounts/token": "token",
		"windowsinstances/status": "windowsinstance", "windowsmachineconfigs/status": "status of the windowsmachineconfig"}
	rules, _ := granted(t)
	for where, all := range rules {
		for _, rule := range all {
			for _, resource := range rule.Resources {
				word := cmp.Or(words[resource], strings.TrimSuffix(resource, "s"))
				if operators(where) && !strings.Contains(strings.ToLower(table), word) {
					t.Errorf("SECURITY.md lacks that the operator may %v %s %v", rule.Verbs, resource, where)
				}
			}
		}
	}
}

func checkRule(t *testing.T, where place, rule rbacv1.PolicyRule) {
	t.Helper()
	anything := slices.Concat(rule.Verbs, rule.Resources, rule.APIGroups)
	if slices.Contains(anything, "*") {
		t.Errorf("%v has a wildcard: %v", where, rule)
	}
	for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
		if slices.Contains(rule.Verbs, verb) {
			t.Errorf("%v may %s: %v", where, verb, rule)
		}
	}
	creates := slices.Equal(rule.Verbs, []string{"create"}) // the name of a new object can't be restricted
	for _, resource := range rule.Resources {
		switch resource {
		case "secrets", "serviceaccounts/token", "signers":
			// In its own namespace, the operator publishes Secrets whose names follow from their content, and creates
			// Secrets that are named after instances. So the rule can't have their names.
			own := resource == "secrets" && where.namespace == contract.OperatorNamespace
			if len(rule.ResourceNames) == 0 && !creates && !own {
				t.Errorf("%v applies to %s with any name: %v", where, resource, rule)
			}
		case "leases", "roles", "rolebindings":
			if len(rule.ResourceNames) == 0 && !creates {
				t.Errorf("%v applies to %s with any name: %v", where, resource, rule)
			}
		case "clusterroles", "clusterrolebindings", "users", "groups", "validatingadmissionpolicies",
			"validatingadmissionpolicybindings":
			t.Errorf("%v has %s: %v", where, resource, rule)
		}
		inNamespace := []string{"secrets", "configmaps", "serviceaccounts/token", "roles", "rolebindings", "leases",
			"events",
			"windowsinstances", "windowsinstances/status"}
		// The operator creates an event in the namespace of the owner of a pod that can't run, which may be any
		// namespace. It doesn't read or change events.
		tells := resource == "events" && creates
		if where.namespace == "" && slices.Contains(inNamespace, resource) && !tells {
			t.Errorf("%s is granted in every namespace: %v", resource, rule)
		}
	}
}

func TestA34_TheDaemonsRightsAreFew(t *testing.T) {
	t.Parallel()
	rules, subjects := granted(t)
	allowed := map[string][]string{"nodes": {"list", "watch", "patch"}, "certificatesigningrequests": {"create", "get"},
		"events": {"create"}, "serviceaccounts/token": {"create"}}
	for where, who := range subjects {
		if !slices.ContainsFunc(who, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.GroupKind &&
				s.Name == contract.DaemonGroup
		}) {
			continue
		}
		for _, rule := range rules[where] {
			for _, resource := range rule.Resources {
				if !slices.Equal(rule.Verbs, allowed[resource]) {
					t.Errorf("daemons may %v %s", rule.Verbs, resource)
				}
				if resource == "serviceaccounts/token" &&
					!slices.Equal(rule.ResourceNames, []string{contract.CloudNodeServiceAccount}) &&
					!slices.Equal(rule.ResourceNames, []string{contract.FlannelServiceAccount}) {
					t.Errorf("daemons may request tokens of %v", rule.ResourceNames)
				}
			}
		}
	}
}

// Kubernetes' own role for joining hosts also lets hosts read requests, because kubelet waits for its certificate.
func TestTheTableOfRightsSaysWhatHostsMayReadOfRequests(t *testing.T) {
	t.Parallel()
	lab := common(t)
	config, _, err := lab.ServiceAccountConfig(t.Context(), contract.OperatorNamespace, contract.BootstrapServiceAccount,
		time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	for who, test := range map[string]struct {
		client kubernetes.Interface
		verbs  []string
		says   string
	}{
		"a host that joins": {connect(t, config), []string{"create", "get", "list", "watch"},
			"read all certificate requests"},
		"daemon of a node": {as(t, lab, contract.DaemonUserPrefix+"win-a", contract.DaemonGroup),
			[]string{"create", "get"}, "read each certificate request by its name"},
	} {
		var verbs []string
		until(t, func(ctx context.Context) bool {
			verbs = verbsFor(ctx, t, test.client, "certificatesigningrequests")
			return len(verbs) > 0
		})
		if !slices.Equal(verbs, test.verbs) {
			t.Errorf("%s may %v certificate requests, want %v", who, verbs, test.verbs)
		}
		_, row, _ := strings.Cut(string(page), "\n| "+who)
		row, _, _ = strings.Cut(row, "\n")
		if may := strings.Split(row, " | ")[1]; !strings.Contains(may, test.says) {
			t.Errorf("SECURITY.md lacks that %s may %s; it has: %s", who, test.says, may)
		}
	}
}

// verbsFor returns what a client may do with a cluster-scoped resource.
func verbsFor(ctx context.Context, t *testing.T, c kubernetes.Interface, resource string) (verbs []string) {
	t.Helper()
	review, err := c.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: "default"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range review.Status.ResourceRules {
		if slices.Contains(rule.Resources, resource) {
			verbs = append(verbs, rule.Verbs...)
		}
	}
	slices.Sort(verbs)
	return slices.Compact(verbs)
}
