package policy_test

import (
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// An approved request must be within these bounds, no matter which rules approved it. The bounds are written
// independently of the rules: they say what a certificate may contain, not how a request is checked.
func TestA07_NoApprovedRequestLeavesItsBounds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	key := ecdsaKey(elliptic.P256())
	approved := map[policy.CSRKind]int{}
	for range 20_000 {
		s := mixed(random)
		s.key = key
		in := s.input()
		got := policy.DecideCSR(in)
		if got.Verdict != policy.CSRApprove {
			continue
		}
		claim, _ := policy.ClaimOf(in.CSR)
		approved[claim.Kind]++
		if out := outOfBounds(in, claim); out != "" {
			t.Fatalf("approved %s although %s:\n%+v\n%+v", got.Reason, out, s.subject, in.CSR.Spec)
		}
	}
	for _, kind := range []policy.CSRKind{policy.CSRKubeletClient, policy.CSRKubeletServing, policy.CSRDaemon} {
		if approved[kind] < 20 {
			t.Errorf("only %d requests of kind %s were approved, so the test shows little", approved[kind], kind)
		}
	}
}

// mixed returns a situation similar to a valid one, in which most parts are unchanged.
func mixed(random *rand.Rand) situation {
	bases := []func() situation{firstKubelet, kubeletRenewal, serving, firstDaemon, daemonRenewal}
	s := bases[random.IntN(len(bases))]()
	other := bases[random.IntN(len(bases))]()
	rarely := func(change func()) {
		if random.IntN(8) == 0 {
			change()
		}
	}
	// The other host must not be joining, so that each approval can only be for the first host.
	s.instances[1].Phase = v1alpha1.PhaseReady
	names := []string{nodeName, "win-ab", "win", "WIN-A", "kubernetes.default.svc", "win-a.corp.example", "localhost",
		"win-a.evil.example", "172.30.0.1", "10.0.0.12", "127.1", "0x7f000001"}
	addresses := []string{nodeAddress, hostAddress, "10.0.0.12", "172.30.0.1", "127.0.0.1", "203.0.113.11", "::1"}
	rarely(func() { s.subject = other.subject })
	rarely(func() {
		s.subject.CommonName = pick(random, []string{"system:node:", "system:wicd-node:", "", "system:"}) +
			pick(random, names)
	})
	rarely(func() {
		s.subject.Organization = append(s.subject.Organization,
			pick(random, []string{"system:nodes", "system:masters"}))
	})
	rarely(func() { s.subject.OrganizationalUnit = []string{"x"} })
	rarely(func() { s.signer = other.signer })
	rarely(func() { s.usages = append(slices.Clone(s.usages), pick(random, other.usages)) })
	rarely(func() { s.usages = other.usages })
	rarely(func() { s.username, s.groups = other.username, other.groups })
	rarely(func() { s.username = pick(random, []string{"system:node:win-ab", operator, bootstrapper, "x"}) })
	rarely(func() { s.annotations = other.annotations })
	rarely(func() { s.expiration = pick(random, []*int32{nil, new(int32(600)), new(int32(1 << 30))}) })
	rarely(func() { s.template.DNSNames = append(s.template.DNSNames, pick(random, names)) })
	rarely(func() {
		s.template.IPAddresses = append(s.template.IPAddresses, net.ParseIP(pick(random, addresses)))
	})
	rarely(func() { s.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} })
	rarely(func() { s.template.EmailAddresses = []string{"a@b.c"} })
	rarely(func() { s.node = other.node })
	rarely(func() { s.instances[0].Phase = pick(random, []v1alpha1.Phase{"", "Ready", "Removing", "Confirming"}) })
	if s.node != nil {
		rarely(func() { s.node.Annotations = nil })
		rarely(func() { s.node.Annotations = map[string]string{contract.InstanceAnnotation: "x/y"} })
		rarely(func() {
			s.node.Status.Addresses = append(s.node.Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: pick(random, names)},
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: pick(random, addresses)})
		})
	}
	return s
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// outOfBounds returns why a request must never be approved, or "" if it may be approved.
func outOfBounds(in policy.CSRInput, claim policy.CSRClaim) string {
	request, spec := claim.Request, in.CSR.Spec
	purpose, prefix, group := certificatesv1.UsageClientAuth, contract.KubeletUserPrefix, contract.KubeletGroup
	requesters := []string{bootstrapper, prefix + nodeName}
	switch claim.Kind {
	case policy.CSRKubeletServing:
		purpose, requesters = certificatesv1.UsageServerAuth, requesters[1:]
	case policy.CSRDaemon:
		prefix, group = contract.DaemonUserPrefix, contract.DaemonGroup
		requesters = []string{operator, prefix + nodeName}
	}
	subject := pkix.Name{CommonName: prefix + nodeName, Organization: []string{group}}
	switch {
	case request.Subject.String() != subject.String():
		return "the subject is " + request.Subject.String()
	case !slices.Contains(requesters, spec.Username):
		return "the requester is " + spec.Username
	case slices.Contains(spec.Usages, certificatesv1.UsageServerAuth) && purpose != certificatesv1.UsageServerAuth:
		return "a client certificate could serve"
	case len(spec.Usages) != 2 || !slices.Contains(spec.Usages, purpose):
		return "the usages are others"
	case claim.Kind == policy.CSRDaemon && (spec.ExpirationSeconds == nil || *spec.ExpirationSeconds > 31*24*3600):
		return "the daemon's certificate lasts too long"
	case spec.ExpirationSeconds != nil && *spec.ExpirationSeconds > 365*24*3600:
		return "the certificate lasts too long"
	case in.Instances[0].Phase == v1alpha1.PhaseRemoving:
		return "the host is being removed"
	case in.Node != nil && in.Node.Annotations[contract.InstanceAnnotation] == "x/y":
		return "the Node is another's"
	}
	return namesOutOfBounds(request, claim.Kind)
}

func namesOutOfBounds(request *x509.CertificateRequest, kind policy.CSRKind) string {
	names, addresses := []string{nodeName, nodeName + ".corp.example", nodeName + ".evil.example", "win"},
		[]string{nodeAddress, hostAddress, "203.0.113.11", "10.0.0.12"}
	if kind != policy.CSRKubeletServing {
		names, addresses = nil, nil
	}
	for _, name := range request.DNSNames {
		if !slices.Contains(names, name) {
			return "it has the name " + name
		}
	}
	for _, address := range request.IPAddresses {
		if !slices.Contains(addresses, address.String()) {
			return "it has the address " + address.String()
		}
	}
	if len(request.EmailAddresses)+len(request.URIs) > 0 {
		return "it has names of other kinds"
	}
	return ""
}

func FuzzParseRequest(f *testing.F) {
	honest := serving().input()
	f.Add(honest.CSR.Spec.Request)
	f.Add(firstKubelet().input().CSR.Spec.Request)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"))
	f.Add([]byte(strings.Repeat("-----BEGIN CERTIFICATE REQUEST-----\n", 3)))
	f.Fuzz(func(t *testing.T, text []byte) {
		request, err := policy.ParseCSR(text)
		if (request == nil) != (err != nil) {
			t.Fatalf("got %v and %v", request, err)
		}
		for _, base := range []func() situation{firstKubelet, serving, firstDaemon} {
			s := base()
			s.request = text
			in := s.input()
			got := policy.DecideCSR(in)
			unread := policy.CSRIgnore
			if s.username == operator {
				unread = policy.CSRDeny
			}
			if err != nil && got.Verdict != unread {
				t.Fatalf("decided %s about an unreadable request", got.Verdict)
			}
			if got.Verdict != policy.CSRApprove {
				continue
			}
			claim, _ := policy.ClaimOf(in.CSR)
			if out := outOfBounds(in, claim); out != "" || request.CheckSignature() != nil {
				t.Fatalf("approved, although %s", out)
			}
		}
	})
}

// FuzzNodeAddresses simulates a kubelet that writes any text into its Node's addresses, and requests a serving
// certificate with the same text.
func FuzzNodeAddresses(f *testing.F) {
	for _, seed := range [][2]string{{"Hostname", "kubernetes.default.svc"}, {"InternalDNS", "WIN-AB"}, {"ExternalDNS", "localhost."},
		{"InternalIP", "172.30.0.1"}, {"ExternalIP", "::ffff:172.30.0.1"}, {"InternalIP", "127.0.0.1"}, {"InternalIP", "10.0.0.12"},
		{"", "*.corp.example"}, {"Hostname", strings.Repeat("a", 300)}, {"InternalIP", "203.0.113.200"}, {"InternalDNS", "0x7f.1"}} {
		f.Add(seed[0], seed[1])
	}
	key := ecdsaKey(elliptic.P256())
	f.Fuzz(func(t *testing.T, kind, address string) {
		s := serving()
		s.node.Status.Addresses = append(s.node.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeAddressType(kind), Address: address})
		ip := net.ParseIP(address)
		if ip != nil {
			s.template.IPAddresses = append(s.template.IPAddresses, ip)
		} else {
			s.template.DNSNames = append(s.template.DNSNames, address)
		}
		s.key, s.template.Subject = key, s.subject
		s.elsewhere = map[string]string{"10.0.0.12": "WindowsInstance b"}
		if _, err := x509.CreateCertificateRequest(cryptorand.Reader, &s.template, key); err != nil {
			t.Skip("a request can't have this text")
		}
		in := s.input()
		if policy.DecideCSR(in).Verdict != policy.CSRApprove {
			return
		}
		name := strings.ToLower(strings.TrimRight(address, "."))
		isClusters := strings.HasPrefix(name, "kubernetes") || strings.HasSuffix(name, ".svc") || name == "localhost"
		if ip != nil {
			a, _ := netip.AddrFromSlice(ip)
			isClusters = in.ServiceNetwork.Contains(a.Unmap()) || ip.IsLoopback() || ip.IsUnspecified()
		}
		// If a client parses the name as an address, it connects to that address.
		last := name[strings.LastIndexByte(name, '.')+1:]
		if _, err := strconv.ParseUint(last, 0, 64); ip == nil && err == nil {
			t.Fatalf("approved %q as a DNS name", address)
		}
		if isClusters || name == "win-ab" || address == "10.0.0.12" || strings.ContainsAny(address, "* \x00") {
			t.Fatalf("approved %q, because its kubelet reports it as its %q", address, kind)
		}
	})
}
