package policy_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/x509/pkix"
	"net"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const hostUID = "0b0c7a1e-5d1c-4a7e-9d55-1d9b6f2d7a11"

// firstHost returns the first request of a host that joins by itself. It must be approved.
func firstHost() situation {
	seconds := int32((14 * 24 * time.Hour).Seconds())
	s := firstKubelet()
	s.subject = pkix.Name{CommonName: contract.HostUserPrefix + hostUID, Organization: []string{contract.HostGroup}}
	s.signer, s.expiration = certificatesv1.KubeAPIServerClientSignerName, &seconds
	s.instances[0].UID, s.instances[0].HostID, s.instances[0].NodeName = hostUID, hostUID, ""
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
		"the same key again": {change: func(s *situation) { s.instances[0].HostKey = contract.Digest(der(own)) },
			want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"a second host with this token": {change: func(s *situation) { s.instances[0].HostKey = contract.Digest(der(other)) },
			want: policy.CSRDeny, reason: policy.CSRKeyOfAnother},
		"the token of another command": {input: func(in *policy.CSRInput) { in.JoinCredentials = []string{"JTI=b"} },
			want: policy.CSRDeny, reason: policy.CSRCredentialForeign},
		"a token without an id": {change: func(s *situation) { s.credential = "" },
			want: policy.CSRDeny, reason: policy.CSRCredentialForeign},
		"no command is published": {input: func(in *policy.CSRInput) { in.JoinCredentials = nil },
			want: policy.CSRWait, reason: policy.CSRCredentialUnknown},
		"the instance leaves": {change: func(s *situation) { s.instances[0].Leaving = true },
			want: policy.CSRWait, reason: policy.CSRInstanceLeaving},
		"a deleted instance": {change: func(s *situation) { s.instances[0].HostID = "another" },
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
			in.JoinCredentials = []string{tokenID}
			if c.input != nil {
				c.input(&in)
			}
			if got := policy.DecideCSR(in); got.Verdict != c.want || got.Reason != c.reason {
				t.Errorf("decided %s %s (%s), want %s %s", got.Verdict, got.Reason, got.Message, c.want, c.reason)
			}
		})
	}
}

// The token of a join command must not work for kubelet's certificate, and a kubelet's token must not work for a
// host's certificate.
func TestA85_ATokenIsNoUseForAnotherCertificate(t *testing.T) {
	t.Parallel()
	in := firstKubelet().input()
	in.JoinCredentials = []string{"JTI=join"}
	if got := policy.DecideCSR(credential(in, "JTI=join")); got.Verdict != policy.CSRWait {
		t.Errorf("a kubelet's request with the token of a join command: %s %s", got.Verdict, got.Reason)
	}
	in = firstHost().input()
	in.JoinCredentials, in.Instances[0].Credentials = []string{"JTI=join"}, []string{tokenID}
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRDeny {
		t.Errorf("a host's request with kubelet's token: %s %s", got.Verdict, got.Reason)
	}
}

// firstOfMachine returns the first request of a Machine's host. It must be approved.
func firstOfMachine(key crypto.Signer) situation {
	s := firstHost()
	s.key = key
	s.subject.CommonName = contract.HostUserPrefix + contract.Digest(der(key))
	s.template.IPAddresses = []net.IP{net.ParseIP(hostAddress)}
	s.instances[0].HostID, s.instances[0].Machine = "", &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "a"}
	s.instances[0].Given = []string{hostAddress, "a.lab.example"}
	return s
}

// OpenShift's machine approver has the same rules. All Machines have the same token. So a request is approved only for
// a new Machine that has the requested addresses and no Node, and each Machine gets a certificate for one key.
func TestA88_TheTokenOfTheUserDataIsWorthOneCertificateOfEachNewMachine(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	own, other := ecdsaKey(elliptic.P256()), ecdsaKey(elliptic.P256())
	known := func(s *situation, key crypto.Signer) {
		s.instances[0].HostID, s.instances[0].HostKey = contract.Digest(der(key)), contract.Digest(der(key))
	}
	renewed := func(s *situation) {
		known(s, own)
		s.template.IPAddresses, s.key = nil, other
		s.username, s.credential = contract.HostUserPrefix+contract.Digest(der(own)), ""
		s.groups = []string{contract.HostGroup, authenticated}
	}
	for name, c := range map[string]struct {
		change func(s *situation)
		input  func(in *policy.CSRInput)
		want   policy.CSRVerdict
		reason policy.CSRReason
	}{
		"the first request":         {want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"the same key again":        {change: func(s *situation) { known(s, own) }, want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"a name of the Machine too": {change: func(s *situation) { s.template.DNSNames = []string{"a.lab.example"} }, want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"the renewal":               {change: renewed, want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"the token before the last": {input: func(in *policy.CSRInput) { in.JoinCredentials = []string{tokenID, "JTI=new"} }, want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"two hours later": {input: func(in *policy.CSRInput) { in.CSR.CreationTimestamp = metav1.NewTime(made.Add(2 * time.Hour)) },
			want: policy.CSRApprove, reason: policy.CSRHostApproved},
		"a Machine older than two hours": {input: func(in *policy.CSRInput) {
			in.CSR.CreationTimestamp = metav1.NewTime(made.Add(2*time.Hour + time.Second))
		}, want: policy.CSRDeny, reason: policy.CSRMachineNotNew},
		"a request from before the Machine": {input: func(in *policy.CSRInput) {
			in.CSR.CreationTimestamp = metav1.NewTime(made.Add(-time.Second))
		}, want: policy.CSRDeny, reason: policy.CSRMachineNotNew},
		"a Machine with a Node": {input: func(in *policy.CSRInput) { in.Machine.NodeRef = "a" },
			want: policy.CSRDeny, reason: policy.CSRMachineNotNew},
		"no Machine": {input: func(in *policy.CSRInput) { in.Machine = nil },
			want: policy.CSRWait, reason: policy.CSRMachineNotNew},
		"no Machine, and the address of an earlier one": {change: func(s *situation) { known(s, other) },
			input: func(in *policy.CSRInput) { in.Machine = nil }, want: policy.CSRWait,
			reason: policy.CSRMachineNotNew},
		"a second key for the Machine": {change: func(s *situation) { known(s, other) },
			want: policy.CSRDeny, reason: policy.CSRKeyOfAnother},
		"the name of another key": {change: func(s *situation) { s.key = other },
			want: policy.CSRDeny, reason: policy.CSRSubjectWrong},
		"the name of another host with a command": {change: func(s *situation) {
			s.subject.CommonName = contract.HostUserPrefix + hostUID
		}, want: policy.CSRDeny, reason: policy.CSRSubjectWrong},
		"an address of no Machine": {change: func(s *situation) { s.template.IPAddresses = []net.IP{net.ParseIP("192.168.7.99")} },
			want: policy.CSRIgnore, reason: policy.CSRNameForeign},
		"without an address": {change: func(s *situation) { s.template.IPAddresses = nil },
			want: policy.CSRIgnore, reason: policy.CSRNameForeign},
		"another address as well": {change: func(s *situation) {
			s.template.IPAddresses = append(s.template.IPAddresses, net.ParseIP("192.168.7.99"))
		}, want: policy.CSRDeny, reason: policy.CSRNameNotOfNode},
		"another name as well": {change: func(s *situation) { s.template.DNSNames = []string{"master-0.lab.example"} },
			want: policy.CSRDeny, reason: policy.CSRNameNotOfNode},
		"the addresses of two Machines": {change: func(s *situation) {
			s.instances[1].Machine, s.instances[1].Given = s.instances[0].Machine, []string{hostAddress}
		}, want: policy.CSRWait, reason: policy.CSRNameAmbiguous},
		"a host that the operator reaches over SSH": {change: func(s *situation) { s.instances[0].Machine = nil },
			want: policy.CSRIgnore, reason: policy.CSRNameForeign},
		"an expired token":          {input: func(in *policy.CSRInput) { in.JoinCredentials = []string{"JTI=new"} }, want: policy.CSRDeny, reason: policy.CSRCredentialForeign},
		"the token of a command":    {change: func(s *situation) { s.credential = "JTI=command" }, want: policy.CSRDeny, reason: policy.CSRCredentialForeign},
		"a token without an id":     {change: func(s *situation) { s.credential = "" }, want: policy.CSRDeny, reason: policy.CSRCredentialForeign},
		"no token in the user data": {input: func(in *policy.CSRInput) { in.JoinCredentials = nil }, want: policy.CSRWait, reason: policy.CSRCredentialUnknown},
		"the instance leaves":       {change: func(s *situation) { s.instances[0].Leaving = true }, want: policy.CSRWait, reason: policy.CSRInstanceLeaving},
		"the masters' group":        {change: func(s *situation) { s.subject.Organization = []string{"system:masters"} }, want: policy.CSRDeny, reason: policy.CSRSubjectWrong},
		"a serving certificate":     {change: func(s *situation) { s.usages[1] = certificatesv1.UsageServerAuth }, want: policy.CSRDeny, reason: policy.CSRUsagesWrong},
		"a renewal with an address": {change: func(s *situation) { renewed(s); s.template.IPAddresses = []net.IP{net.ParseIP(hostAddress)} }, want: policy.CSRDeny, reason: policy.CSRNamesForbidden},
		"a renewal by another host": {change: func(s *situation) { renewed(s); s.username = contract.HostUserPrefix + hostUID }, want: policy.CSRDeny, reason: policy.CSRRequesterWrong},
		"a kubelet with a Machine's IP": {change: func(s *situation) {
			s.subject = pkix.Name{CommonName: "system:node:master-0", Organization: []string{"system:nodes"}}
		}, want: policy.CSRIgnore, reason: policy.CSRNameForeign},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := firstOfMachine(own)
			if c.change != nil {
				c.change(&s)
			}
			in := s.input()
			in.JoinCredentials, in.Machine = []string{tokenID}, &policy.CSRMachine{CreatedAt: made}
			in.CSR.CreationTimestamp = metav1.NewTime(made.Add(time.Minute))
			if c.input != nil {
				c.input(&in)
			}
			if got := policy.DecideCSR(in); got.Verdict != c.want || got.Reason != c.reason {
				t.Errorf("decided %s %s (%s), want %s %s", got.Verdict, got.Reason, got.Message, c.want, c.reason)
			}
		})
	}
}

// The token of the user data must not work for kubelet's certificate, and not for a daemon's certificate, because the
// token belongs to no instance.
func TestA88_TheTokenOfTheUserDataIsNoUseForANode(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]situation{"kubelet": firstKubelet(), "daemon": firstDaemon(), "serving": serving()} {
		s.username, s.credential = bootstrapper, "JTI=machines"
		in := s.input()
		in.JoinCredentials = []string{"JTI=machines"}
		if got := policy.DecideCSR(in); got.Verdict == policy.CSRApprove {
			t.Errorf("%s: approved: %s", name, got.Message)
		}
	}
}
