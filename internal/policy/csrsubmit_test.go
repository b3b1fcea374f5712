package policy_test

import (
	"crypto/x509/pkix"
	"testing"

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
