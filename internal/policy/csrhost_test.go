package policy_test

import (
	"crypto/elliptic"
	"crypto/x509/pkix"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const hostUID = "0b0c7a1e-5d1c-4a7e-9d55-1d9b6f2d7a11"

// firstHost is the first request of a host that joins by itself. It is to be approved.
func firstHost() situation {
	seconds := int32((14 * 24 * time.Hour).Seconds())
	s := firstKubelet()
	s.subject = pkix.Name{CommonName: contract.HostUserPrefix + hostUID, Organization: []string{contract.HostGroup}}
	s.signer, s.expiration = certificatesv1.KubeAPIServerClientSignerName, &seconds
	s.instances[0].UID, s.instances[0].NodeName = hostUID, ""
	s.instances[0].Phase, s.instances[0].Credentials = v1alpha1.PhaseConnecting, nil
	return s
}

func hostRenewal() situation {
	s := firstHost()
	s.username, s.credential = contract.HostUserPrefix+hostUID, ""
	s.groups = []string{contract.HostGroup, authenticated}
	return s
}

func TestA85_TheTokenOfACommandIsWorthOneCertificateOfItsHost(t *testing.T) {
	t.Parallel()
	own, other := ecdsaKey(elliptic.P256()), ecdsaKey(elliptic.P256())
	for name, c := range map[string]struct {
		base   func() situation
		change func(s *situation)
		input  func(in *policy.CSRInput)
		want   policy.CSRVerdict
		reason policy.CSRReason
	}{
		"the first request": {want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"the renewal":       {base: hostRenewal, want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"the same key again": {input: func(in *policy.CSRInput) { in.JoinKey = contract.Digest(der(own)) },
			want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"a second host with this token": {input: func(in *policy.CSRInput) { in.JoinKey = contract.Digest(der(other)) },
			want: policy.CSRDeny, reason: policy.CSRKeyOfAnother},
		"the token of another command": {input: func(in *policy.CSRInput) { in.JoinCredential = "JTI=b" },
			want: policy.CSRDeny, reason: policy.CSRCredentialForeign},
		"a token without an id": {change: func(s *situation) { s.credential = "" },
			want: policy.CSRDeny, reason: policy.CSRCredentialForeign},
		"no command is published": {input: func(in *policy.CSRInput) { in.JoinCredential = "" },
			want: policy.CSRWait, reason: policy.CSRCredentialUnknown},
		"the instance leaves": {change: func(s *situation) { s.instances[0].Leaving = true },
			want: policy.CSRWait, reason: policy.CSRInstanceLeaving},
		"a deleted instance": {change: func(s *situation) { s.instances[0].UID = "another" },
			want: policy.CSRIgnore, reason: policy.CSRNameForeign},
		"the group of daemons": {change: func(s *situation) { s.subject.Organization = []string{contract.DaemonGroup} },
			want: policy.CSRDeny, reason: policy.CSRSubjectWrong},
		"the masters' group as well": {change: func(s *situation) {
			s.subject.Organization = []string{contract.HostGroup, "system:masters"}
		}, want: policy.CSRDeny, reason: policy.CSRSubjectWrong},
		"without a lifetime": {change: func(s *situation) { s.expiration = nil },
			want: policy.CSRDeny, reason: policy.CSRLifetimeMissing},
		"renewed by another host": {base: hostRenewal, change: func(s *situation) {
			s.username = contract.HostUserPrefix + "another"
		}, want: policy.CSRDeny, reason: policy.CSRRequesterWrong},
		"renewed by the node's daemon": {base: hostRenewal, change: func(s *situation) {
			s.username, s.groups = contract.DaemonUserPrefix+nodeName, []string{contract.DaemonGroup, authenticated}
		}, want: policy.CSRDeny, reason: policy.CSRRequesterWrong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := c.base
			if base == nil {
				base = firstHost
			}
			s := base()
			s.key = own
			if c.change != nil {
				c.change(&s)
			}
			in := s.input()
			in.JoinCredential = tokenID
			if c.input != nil {
				c.input(&in)
			}
			if got := policy.DecideCSR(in); got.Verdict != c.want || got.Reason != c.reason {
				t.Errorf("decided %s %s (%s), want %s %s", got.Verdict, got.Reason, got.Message, c.want, c.reason)
			}
		})
	}
}

// The token of a command is none of the tokens that kubelets get, and the other way round.
func TestA85_ATokenIsNoUseForAnotherCertificate(t *testing.T) {
	t.Parallel()
	in := firstKubelet().input()
	in.JoinCredential = "JTI=join"
	if got := policy.DecideCSR(credential(in, "JTI=join")); got.Verdict != policy.CSRWait {
		t.Errorf("a kubelet's request with the token of a command: %s %s", got.Verdict, got.Reason)
	}
	in = firstHost().input()
	in.JoinCredential, in.Instances[0].Credentials = "JTI=join", []string{tokenID}
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRDeny {
		t.Errorf("a host's request with kubelet's token: %s %s", got.Verdict, got.Reason)
	}
}
