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
		if policy.Name == contract.ServicesReaderRole || policy.Name == "windows-node-release" ||
			policy.Name == "windows-instance-namespace" {
			// The first policy applies to every client that writes the role, the second to every client except the
			// operator, and the third to every client.
			continue
		}
		if strings.HasPrefix(policy.Name, "windows-operator-") {
			operator := "request.userInfo.username == '" + csr.OperatorUser(contract.OperatorNamespace) + "'"
			if c := policy.Spec.MatchConditions; len(c) != 1 || c[0].Expression != operator {
				t.Errorf("%s does not recognise the operator: %v", policy.Name, c)
			}
			continue
		}
		if policy.Name == "windows-kubelet-node" {
			kubelet := "'" + contract.KubeletGroup + "' in request.userInfo.groups || " +
				"request.userInfo.username.startsWith('" + contract.KubeletUserPrefix + "')"
			if c := policy.Spec.MatchConditions; len(c) != 1 || c[0].Expression != kubelet {
				t.Errorf("%s does not recognise a kubelet: %v", policy.Name, c)
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
		if policy.Name == "windows-cloud-node" {
			manager := "request.userInfo.username == '" + "system:serviceaccount:" +
				contract.OperatorNamespace + ":" + contract.CloudNodeServiceAccount + "'"
			if c := policy.Spec.MatchConditions; len(c) != 1 || c[0].Expression != manager {
				t.Errorf("%s does not recognise Azure's node manager: %v", policy.Name, c)
			}
			continue
		}
		if policy.Name == "windows-flannel" {
			flanneld := "request.userInfo.username == '" + "system:serviceaccount:" +
				contract.OperatorNamespace + ":" + contract.FlannelServiceAccount + "'"
			if c := policy.Spec.MatchConditions; len(c) != 1 || c[0].Expression != flanneld {
				t.Errorf("%s does not recognise flanneld: %v", policy.Name, c)
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

// The policy has the names of annotations in CEL. They must equal the annotations that the daemon writes.
func TestA34_ThePolicyNamesTheDaemonsAnnotations(t *testing.T) {
	t.Parallel()
	policy := named[*admissionregistrationv1.ValidatingAdmissionPolicy](t, "windows-daemon-node")
	mine := policy.Spec.Variables[0]
	want := "['" + strings.Join([]string{contract.RevisionAnnotation, contract.ApplyStatusAnnotation,
		contract.RebootRequiredAnnotation, contract.StagedAnnotation,
		contract.StagedBytesAnnotation, contract.StageStatusAnnotation, contract.BootIDAnnotation,
		contract.RebootPendingAnnotation, contract.CertificateEndAnnotation}, "', '") + "']"
	if mine.Name != "mine" || mine.Expression != want {
		t.Errorf("%s is %s, want %s", mine.Name, mine.Expression, want)
	}
}
