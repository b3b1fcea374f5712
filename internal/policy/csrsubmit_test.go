package policy_test

import (
	"crypto/x509/pkix"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/internal/policy"
)

func TestA52_WhatTheOperatorSubmittedAndDoesNotRecogniseIsDenied(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *situation){
		"the controller manager": func(
			s *situation) {
			s.subject = pkix.Name{CommonName: "system:kube-controller-manager"}
		},
		"something unreadable": func(s *situation) { s.request = []byte("x") },
	} {
		s := firstDaemon()
		change(&s)
		if got := policy.DecideCSR(s.input()); got.Verdict != policy.CSRDeny || got.Reason != policy.CSRNotRecognised {
			t.Errorf("%s: decided %s %s", name, got.Verdict, got.Reason)
		}
	}
	s := firstDaemon()
	s.username = "system:admin"
	s.subject.CommonName = "system:kube-controller-manager"
	if got := policy.DecideCSR(s.input()); got.Verdict != policy.CSRIgnore {
		t.Errorf("a foreign request: decided %s %s", got.Verdict, got.Reason)
	}
}

// It stayed pending, and administrators approve whatever is pending.
func TestA52_ADaemonsRequestForANodeThatNoInstanceHasIsDenied(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		base    func() situation
		change  func(s *situation)
		verdict policy.CSRVerdict
	}{
		"a removed host's daemon renews":                  {daemonRenewal, func(*situation) {}, policy.CSRDeny},
		"the operator asked before the instance was gone": {firstDaemon, func(*situation) {}, policy.CSRDeny},
		"somebody else asks": {daemonRenewal,
			func(s *situation) { s.username = "mallory" }, policy.CSRDeny},
		"a signer that signs kubelets only": {daemonRenewal,
			func(s *situation) { s.signer = certificatesv1.KubeAPIServerClientKubeletSignerName }, policy.CSRIgnore},
		"a kubelet's may be another's": {kubeletRenewal, func(*situation) {}, policy.CSRIgnore},
	} {
		s := test.base()
		test.change(&s)
		s.instances = nil
		got := policy.DecideCSR(s.input())
		if got.Verdict != test.verdict || got.Reason != policy.CSRNameForeign {
			t.Errorf("%s: decided %s %s", name, got.Verdict, got.Reason)
		}
	}
}
