package policy_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

func TestA54_WhatAKubeletSaysOfItselfBuysNoForeignNameOrAddress(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"its name in the cluster's domain": nodeName + ".svc.cluster.local",
		"its name in a domain of others":   nodeName + ".evil.example",
		"an address outside":               "198.51.100.7",
		"the API server's address":         "10.0.0.5",
		"a pod's address":                  "10.128.3.7",
	} {
		for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName,
			corev1.NodeInternalDNS} {
			s := serving()
			s.node.Status.Addresses = append(s.node.Status.Addresses, corev1.NodeAddress{Type: kind, Address: text})
			if ip := net.ParseIP(text); ip != nil {
				s.template.IPAddresses = append(s.template.IPAddresses, ip)
			} else {
				s.template.DNSNames = append(s.template.DNSNames, text)
			}
			in := s.input()
			in.Reserved = []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32"), netip.MustParsePrefix("10.128.0.0/14")}
			if got := policy.DecideCSR(in); got.Verdict != policy.CSRRefuse || got.Reason != policy.CSRNameNotOfNode {
				t.Errorf("%s as %s: decided %s %s", name, kind, got.Verdict, got.Reason)
			}
		}
	}
}

// Clients parse the names in this test as IP addresses. Without this rule, a host could get a certificate for a
// forbidden address by requesting it as a DNS name.
func TestA54_NoNameInACertificateIsAnAddress(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a Service's address":          "172.30.0.1",
		"the node's own address":       nodeAddress,
		"the API server's":             "10.0.0.5",
		"a short form":                 "127.1",
		"one number":                   "2886729729",
		"a hexadecimal number":         "0x7f000001",
		"a hexadecimal part":           "127.0.0.0x1",
		"an empty hexadecimal part":    "127.0x",
		"an octal part":                "0254.036.0.01",
		"capitals":                     "0X7F.1",
		"a numeric last label":         "win-a.example.1",
		"a trailing dot":               "172.30.0.1.",
		"IPv6":                         "fd00::1",
		"IPv6 that holds an IPv4":      "::ffff:172.30.0.1",
		"IPv6 in brackets":             "[fd00::1]",
		"a number that is too large":   "99999999999999999999",
		"a numeric label and a domain": "win-a.10",
	} {
		for _, kind := range []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS} {
			s := serving()
			s.node.Status.Addresses = append(s.node.Status.Addresses, corev1.NodeAddress{Type: kind, Address: text})
			s.template.DNSNames = append(s.template.DNSNames, text)
			// The rule applies even if the user configured this name.
			s.instances[0].Given = append(s.instances[0].Given, text)
			s.instances[0].Addresses = append(s.instances[0].Addresses, text)
			if got := policy.DecideCSR(s.input()); got.Verdict != policy.CSRRefuse ||
				got.Reason != policy.CSRNameNotOfNode || !got.Settled {
				t.Errorf("%s (%s) as %s: decided %s %s", name, text, kind, got.Verdict, got.Reason)
			}
		}
	}
	for _, text := range []string{"win-a1", "1win", "10-0-0-5.corp.example", "win.0xg", "win.1a", "10.0.0.5.corp.example"} {
		s := serving()
		s.template.DNSNames = append(s.template.DNSNames, text)
		s.instances[0].Addresses = append(s.instances[0].Addresses, text)
		if got := policy.DecideCSR(s.input()); got.Verdict != policy.CSRApprove {
			t.Errorf("%s: decided %s %s: %s", text, got.Verdict, got.Reason, got.Message)
		}
	}
}

// A node that has the API server's name, or that lists this name in its status, must not get a certificate for it.
func TestA54_TheAPIServersNameIsNoNodes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *situation, api string){
		"a given address": func(s *situation, api string) {
			s.instances[0].Given = append(s.instances[0].Given, api)
			s.instances[0].Addresses = append(s.instances[0].Addresses, api)
		},
		"listed by kubelet": func(s *situation, api string) {
			s.node.Status.Addresses = append(s.node.Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: api})
		},
	} {
		for _, api := range []string{"api-int.lab.example.com", "API.lab.example.com"} {
			s := serving()
			change(&s, api)
			s.template.DNSNames = append(s.template.DNSNames, api)
			in := s.input()
			in.ReservedNames = []string{"api-int.lab.example.com", "api.lab.example.com"}
			if got := policy.DecideCSR(in); got.Verdict != policy.CSRRefuse || got.Reason != policy.CSRNameNotOfNode {
				t.Errorf("%s as %s: decided %s %s", api, name, got.Verdict, got.Reason)
			}
		}
	}
	s := serving()
	in := s.input()
	in.ReservedNames = []string{nodeName}
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRRefuse {
		t.Errorf("a node that is named like the API server: decided %s %s", got.Verdict, got.Reason)
	}
}

// A listed host may have a public address from its cloud, which kubelet reports. Only the user can confirm that this
// address belongs to the host.
func TestA54_WhatOnlyTheKubeletReportsIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	s := serving()
	const public = "198.51.100.7"
	s.node.Status.Addresses = append(s.node.Status.Addresses,
		corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: public})
	s.template.IPAddresses = append(s.template.IPAddresses, net.ParseIP(public))
	got := policy.DecideCSR(s.input())
	if got.Verdict != policy.CSRRefuse || !strings.Contains(got.Message, "spec.addresses") ||
		!strings.Contains(got.Message, public) || !strings.Contains(got.Message, s.instances[0].Name) {
		t.Errorf("decided %s %s: %s", got.Verdict, got.Reason, got.Message)
	}
	s.instances[0].Given, s.instances[0].Addresses = append(s.instances[0].Given, public),
		append(s.instances[0].Addresses, public)
	if got = policy.DecideCSR(s.input()); got.Verdict != policy.CSRApprove {
		t.Errorf("after the user has configured it: decided %s %s: %s", got.Verdict, got.Reason, got.Message)
	}
}

func TestA07_NamesAreTheSameInUpperCase(t *testing.T) {
	t.Parallel()
	s := serving()
	s.instances[0].Addresses = append(s.instances[0].Addresses, "WIN1.Corp.Example")
	for name, asked := range map[string]string{"as the cloud writes it": "WIN1.Corp.Example",
		"in lower case": "win1.corp.example"} {
		s.template.DNSNames = []string{nodeName, asked}
		if got := policy.DecideCSR(s.input()); got.Verdict != policy.CSRApprove {
			t.Errorf("%s: decided %s %s: %s", name, got.Verdict, got.Reason, got.Message)
		}
	}
	s.template.DNSNames = []string{nodeName, "WIN1.Corp.Example"}
	in := s.input()
	in.Elsewhere = map[string]string{"WIN1.Corp.Example": "Node b"}
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRRefuse || got.Reason != policy.CSRNameNotOfNode {
		t.Errorf("a name that another host also has: decided %s %s", got.Verdict, got.Reason)
	}
	for _, forbidden := range []string{"LOCALHOST", "API.Default.SVC", "Kubernetes"} {
		s.template.DNSNames = []string{nodeName, forbidden}
		s.node.Status.Addresses = append(s.node.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: forbidden})
		if got := policy.DecideCSR(s.input()); got.Verdict != policy.CSRRefuse || got.Reason != policy.CSRNameNotOfNode {
			t.Errorf("%s: decided %s %s", forbidden, got.Verdict, got.Reason)
		}
	}
}

func TestA54_WhatAnotherHostSaysOfItselfTakesNoCertificateFromThisOne(t *testing.T) {
	t.Parallel()
	s := serving()
	s.instances[0].Given = []string{nodeAddress}
	in := s.input()
	in.ReportedElsewhere = map[string]string{nodeAddress: "Node win-b", nodeName: "Node win-b"}
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRApprove {
		t.Errorf("an address that is configured for this instance: decided %s %s: %s",
			got.Verdict, got.Reason, got.Message)
	}
	in.Instances[0].Given = nil
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRRefuse || got.Reason != policy.CSRNameNotOfNode {
		t.Errorf("an address that both hosts report: decided %s %s", got.Verdict, got.Reason)
	}
	in.ReportedElsewhere, in.Elsewhere = nil, map[string]string{nodeAddress: "WindowsInstance b"}
	in.Instances[0].Given = []string{nodeAddress}
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRRefuse {
		t.Errorf("an address that is configured for both: decided %s %s", got.Verdict, got.Reason)
	}
}

// If a host is listed by a DNS name, only the host itself reports its address. The address at which the operator
// reached the host counts more than reports of other hosts.
func TestA54_AnAddressWhereTheHostWasReachedCountsMoreThanWhatOthersSay(t *testing.T) {
	t.Parallel()
	const others = "10.0.0.77"
	for name, test := range map[string]struct {
		given, reached         string
		elsewhere, found, said bool // where another host has the same address
		verdict                policy.CSRVerdict
	}{
		"another host reports the address":                     {reached: nodeAddress, said: true, verdict: policy.CSRApprove},
		"in another way":                                       {reached: "::ffff:" + nodeAddress, said: true, verdict: policy.CSRApprove},
		"another was reached there, too":                       {reached: nodeAddress, found: true, verdict: policy.CSRRefuse},
		"another was given it":                                 {reached: nodeAddress, elsewhere: true, verdict: policy.CSRRefuse},
		"it was reached elsewhere":                             {reached: others, said: true, verdict: policy.CSRRefuse},
		"the address at which the host was reached is unknown": {said: true, verdict: policy.CSRRefuse},
		"only another was reached there":                       {reached: others, found: true, verdict: policy.CSRRefuse},
		"a configured address counts more":                     {given: nodeAddress, found: true, said: true, verdict: policy.CSRApprove},
		"no other host has the address":                        {reached: others, verdict: policy.CSRApprove},
	} {
		s := serving()
		s.instances[0].Given, s.instances[0].Reached = []string{"win-a.corp.example", test.given}, test.reached
		in := s.input()
		has := func(is bool) map[string]string {
			if !is {
				return nil
			}
			return map[string]string{nodeAddress: "WindowsInstance b"}
		}
		in.Elsewhere, in.Found, in.ReportedElsewhere = has(test.elsewhere), has(test.found), has(test.said)
		got := policy.DecideCSR(in)
		if got.Verdict != test.verdict || got.Verdict == policy.CSRRefuse && got.Reason != policy.CSRNameNotOfNode {
			t.Errorf("%s: decided %s %s: %s", name, got.Verdict, got.Reason, got.Message)
		}
		if cured := strings.Contains(got.Message, "add it to spec.addresses"); got.Verdict == policy.CSRRefuse &&
			cured == test.elsewhere {
			t.Errorf("%s: the message is %q", name, got.Message)
		}
	}
	s := serving()
	s.instances[0].Reached = "198.51.100.7"
	s.template.IPAddresses = append(s.template.IPAddresses, net.ParseIP("198.51.100.7"))
	if got := policy.DecideCSR(s.input()); got.Verdict != policy.CSRRefuse {
		t.Errorf("a gateway's address, at which the operator reached the host: decided %s %s", got.Verdict, got.Reason)
	}
}

// A host reports its node address itself. If it reports a public address, this may be the address of a registry or of
// the ingress.
func TestA54_APublicAddressThatOnlyTheHostSaysIsNotItsOwn(t *testing.T) {
	t.Parallel()
	instance := &v1alpha1.WindowsInstance{}
	instance.Spec.Address = "win.example.com"
	for address, counts := range map[string]bool{"198.51.100.7": false, "10.0.0.7": true, "nonsense": false, "": false} {
		instance.Status.Host = &v1alpha1.HostInfo{NodeIP: address}
		if got := slices.Contains(policy.CSRInstanceOf(instance).Addresses, address); got != counts {
			t.Errorf("%q counts: %v", address, got)
		}
	}
	instance.Spec.NodeIP, instance.Status.Host.NodeIP = "198.51.100.7", "198.51.100.7"
	if !slices.Contains(policy.CSRInstanceOf(instance).Addresses, "198.51.100.7") {
		t.Error("a public address that the user configured is ignored")
	}
}
