package config_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/csr"
)

func TestA34_PoliciesAreBoundAndFailClosed(t *testing.T) {
	t.Parallel()
	for _, policy := range find[*admissionregistrationv1.ValidatingAdmissionPolicy](t) {
		if policy.Name == "windows-workload-daemonset" {
			// This policy only warns. It must not block requests, even if it can't be evaluated.
			warns := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
			binding := named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, policy.Name).Spec
			if *policy.Spec.FailurePolicy != admissionregistrationv1.Ignore || !slices.Equal(binding.ValidationActions, warns) {
				t.Errorf("%s does more than warn: %+v", policy.Name, binding)
			}
			continue
		}
		if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionregistrationv1.Fail {
			t.Errorf("%s allows requests that it can't evaluate", policy.Name)
		}
		binding := named[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](t, policy.Name).Spec
		if binding.PolicyName != policy.Name || binding.MatchResources != nil || len(binding.ValidationActions) != 1 ||
			binding.ValidationActions[0] != admissionregistrationv1.Deny {
			t.Errorf("the binding of %s is %+v", policy.Name, binding)
		}
		if policy.Name == nodeWriters {
			recognises(t, policy)
			continue
		}
		if policy.Name == contract.ServicesReaderRole || policy.Name == "windows-instance-namespace" {
			continue // applies to every client
		}
		if strings.HasPrefix(policy.Name, "windows-operator-") {
			operator := "request.userInfo.username == '" + csr.OperatorUser(contract.OperatorNamespace) + "'"
			if c := policy.Spec.MatchConditions; len(c) != 1 || c[0].Expression != operator {
				t.Errorf("%s does not recognise the operator: %v", policy.Name, c)
			}
			continue
		}
		if policy.Name == "windows-kubelet-request" {
			requester := "'" + contract.KubeletGroup + "' in request.userInfo.groups || " +
				"request.userInfo.username.startsWith('" + contract.KubeletUserPrefix + "') || " +
				"request.userInfo.username == 'system:serviceaccount:" + contract.OperatorNamespace + ":" +
				contract.BootstrapServiceAccount + "'"
			if c := policy.Spec.MatchConditions; len(c) != 1 || c[0].Expression != requester {
				t.Errorf("%s does not recognise a kubelet and the bootstrapper: %v", policy.Name, c)
			}
			continue
		}
		if policy.Name == "windows-host-call" {
			host := "'" + contract.HostGroup + "' in request.userInfo.groups || " +
				"request.userInfo.username.startsWith('" + contract.HostUserPrefix + "')"
			if c := policy.Spec.MatchConditions; len(c) != 1 || c[0].Expression != host {
				t.Errorf("%s does not recognise a host that joins by itself: %v", policy.Name, c)
			}
			continue
		}
		for _, condition := range policy.Spec.MatchConditions {
			if !strings.Contains(condition.Expression, "'"+contract.DaemonGroup+"'") ||
				!strings.Contains(condition.Expression, "'"+contract.DaemonUserPrefix+"'") {
				t.Errorf("%s does not recognise a daemon: %s", policy.Name, condition.Expression)
			}
		}
	}
}

// nodeWriters is the name of the policy that restricts what each client may write to a Node.
const nodeWriters = "windows-node-writers"

// recognises checks how the policy of Nodes recognises each client that it restricts.
func recognises(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
	t.Helper()
	if len(policy.Spec.MatchConditions) > 0 {
		t.Errorf("%s has match conditions, for which the API server converts each Node once more", policy.Name)
	}
	is := func(group, prefix string) string {
		return "'" + group + "' in variables.groups || variables.user.startsWith('" + prefix + "')"
	}
	account := func(name string) string {
		return "variables.user == 'system:serviceaccount:" + contract.OperatorNamespace + ":" + name + "'"
	}
	for name, want := range map[string]string{
		"kubelet":  "(" + is(contract.KubeletGroup, contract.KubeletUserPrefix) + ")",
		"daemon":   is(contract.DaemonGroup, contract.DaemonUserPrefix),
		"operator": "variables.user == '" + csr.OperatorUser(contract.OperatorNamespace) + "'",
		"flanneld": account(contract.FlannelServiceAccount),
		"azure":    account(contract.CloudNodeServiceAccount),
	} {
		if got := variable(t, policy, name); got != want && !strings.HasSuffix(got, "&& "+want) {
			t.Errorf("%s recognises %s by %s, want %s", policy.Name, name, got, want)
		}
	}
}

// variable returns the expression of a policy's variable.
func variable(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy, name string) string {
	t.Helper()
	for _, v := range policy.Spec.Variables {
		if v.Name == name {
			return v.Expression
		}
	}
	t.Fatalf("%s has no variable %s", policy.Name, name)
	return ""
}

// The policy has the names of annotations in CEL. They must equal the annotations that the daemon writes.
func TestA34_ThePolicyNamesTheDaemonsAnnotations(t *testing.T) {
	t.Parallel()
	policy := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, nodeWriters)
	want := "['" + strings.Join([]string{contract.RevisionAnnotation, contract.ApplyStatusAnnotation,
		contract.RebootRequiredAnnotation, contract.StagedAnnotation,
		contract.StagedBytesAnnotation, contract.StageStatusAnnotation, contract.BootIDAnnotation,
		contract.RebootPendingAnnotation, contract.CertificateEndAnnotation}, "', '") + "']"
	if got := variable(t, policy, "ofDaemon"); got != want {
		t.Errorf("the annotations of a daemon are %s, want %s", got, want)
	}
}
