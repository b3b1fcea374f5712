package policy_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

type adversarial struct {
	base    func() situation
	change  func(s *situation)
	verdict policy.CSRVerdict
	reason  policy.CSRReason
}

func TestA07_OnlyExactRequestsAreApproved(t *testing.T) {
	t.Parallel()
	tables := []map[string]adversarial{honestCases(), foreignCases(), shapeCases(), requesterCases(), timingCases(),
		servingCases(), daemonCases()}
	count := 0
	for _, table := range tables {
		count += len(table)
		for name, test := range table {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := test.base()
				if test.change != nil {
					test.change(&s)
				}
				got := policy.DecideCSR(s.input())
				if got.Verdict != test.verdict || got.Reason != test.reason {
					t.Errorf("decided %s %s (%s), want %s %s", got.Verdict, got.Reason, got.Message, test.verdict,
						test.reason)
				}
				if got.Message == "" || len(got.Message) > 500 {
					t.Errorf("the message has %d bytes: %q", len(got.Message), got.Message)
				}
				if (got.Instance == nil) != (got.Verdict == policy.CSRIgnore) {
					t.Errorf("the verdict %s names the instance %v", got.Verdict, got.Instance)
				}
			})
		}
	}
	if count < 40 {
		t.Errorf("only %d cases", count)
	}
}

func honestCases() map[string]adversarial {
	return map[string]adversarial{
		"a host's first kubelet client request is approved": {
			base: firstKubelet, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved},
		"a first request is approved again while the host is being adopted and its Node is not Ready": {
			base: firstKubelet, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved,
			change: func(s *situation) {
				s.instances[0].Phase, s.instances[0].NodeUID = v1alpha1.PhaseAdopting, "uid-a"
				s.node = nodeA(corev1.ConditionUnknown)
			}},
		"a kubelet's renewal of its client certificate is approved": {
			base: kubeletRenewal, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved},
		"a kubelet's serving request for its own names and addresses is approved": {
			base: serving, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved},
		"a serving request for every address of the Node and the instance is approved": {
			base: serving, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved,
			change: func(s *situation) {
				s.template.DNSNames = []string{nodeName, nodeName + ".corp.example"}
				s.template.IPAddresses = []net.IP{net.ParseIP(nodeAddress), net.ParseIP("203.0.113.11"),
					net.ParseIP(hostAddress)}
			}},
		"a serving request for an address alone is approved": {
			base: serving, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved,
			change: func(s *situation) { s.template.DNSNames = nil }},
		"a serving request for the DNS name that the user gave is approved": {
			base: serving, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved,
			change: func(s *situation) {
				s.instances[0].Addresses = []string{"host7.lab.example"}
				s.template.DNSNames = []string{"host7.lab.example"}
			}},
		"a serving request for the loopback address at which the host is reached is approved": {
			base: serving, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved,
			change: func(s *situation) {
				s.instances[0].Addresses = []string{"127.0.3.7"}
				s.template.IPAddresses = []net.IP{net.ParseIP("127.0.3.7")}
			}},
		"the operator's request for a joining host's daemon is approved": {
			base: firstDaemon, verdict: policy.CSRApprove, reason: policy.CSRDaemonApproved},
		"the operator's request is approved when kubelet registered before the Node was adopted": {
			base: firstDaemon, verdict: policy.CSRApprove, reason: policy.CSRDaemonApproved,
			change: func(s *situation) {
				s.node = nodeA(corev1.ConditionFalse)
				s.node.Annotations = nil
			}},
		"a daemon's renewal of its own certificate is approved": {
			base: daemonRenewal, verdict: policy.CSRApprove, reason: policy.CSRDaemonApproved},
		"an RSA key of 2048 bits with key encipherment is approved": {
			base: firstKubelet, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved,
			change: func(s *situation) {
				s.key = rsaKey(2048)
				s.usages = append(s.usages, certificatesv1.UsageKeyEncipherment)
			}},
		"usages in another order are approved": {
			base: firstKubelet, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved,
			change: func(s *situation) { slices.Reverse(s.usages) }},
		"a kubelet request for exactly one year is approved": {
			base: firstKubelet, verdict: policy.CSRApprove, reason: policy.CSRKubeletApproved,
			change: func(s *situation) { s.expiration = new(int32(365 * 24 * 3600)) }},
		"a daemon request for exactly 31 days is approved": {
			base: firstDaemon, verdict: policy.CSRApprove, reason: policy.CSRDaemonApproved,
			change: func(s *situation) { s.expiration = new(int32(31 * 24 * 3600)) }},
	}
}

func foreignCases() map[string]adversarial {
	named := func(name string) func(*situation) {
		return func(s *situation) { s.subject.CommonName = name }
	}
	ignored := func(reason policy.CSRReason, change func(*situation)) adversarial {
		return adversarial{base: firstKubelet, change: change, verdict: policy.CSRIgnore, reason: reason}
	}
	return map[string]adversarial{
		"a Linux node's request is ignored": ignored(policy.CSRNameForeign,
			named("system:node:master-0")),
		"a name that contains ours is ignored": ignored(policy.CSRNameForeign, named("system:node:win-a1")),
		"a name that ends in ours is ignored": ignored(policy.CSRNameForeign,
			named("system:node:not-win-a")),
		"a name that is contained in ours is ignored": ignored(policy.CSRNameForeign, named("system:node:win")),
		"our name in capitals is another name":        ignored(policy.CSRNameForeign, named("system:node:WIN-A")),
		"our name with a domain is another name": ignored(policy.CSRNameForeign,
			named("system:node:win-a.example.com")),
		"our name with a trailing dot is another name":   ignored(policy.CSRNameForeign, named("system:node:win-a.")),
		"our name with a trailing space is another name": ignored(policy.CSRNameForeign, named("system:node:win-a ")),
		"our name with a NUL in it is another name": ignored(policy.CSRNameForeign,
			named("system:node:win-a\x00.evil")),
		"our name behind two prefixes is another name": ignored(policy.CSRNameForeign,
			named("system:node:system:node:win-a")),
		"an empty node name is ignored":          ignored(policy.CSRNotOurs, named("system:node:")),
		"the name without the prefix is ignored": ignored(policy.CSRNotOurs, named("win-a")),
		"the prefix in capitals is ignored":      ignored(policy.CSRNotOurs, named("System:Node:win-a")),
		"a daemon of a name that is not ours is ignored": ignored(policy.CSRNameForeign,
			named("system:wicd-node:master-0")),
		"the hybrid overlay's own request is the network's business": {base: kubeletRenewal, change: ofOverlay,
			verdict: policy.CSRIgnore, reason: policy.CSRNotOurs},
		"the hybrid overlay's renewal is the network's business": {base: kubeletRenewal,
			change: func(s *situation) {
				ofOverlay(s)
				s.username, s.groups = s.subject.CommonName, []string{"system:ovn-nodes", authenticated}
			}, verdict: policy.CSRIgnore, reason: policy.CSRNotOurs},
		"an administrator's name is ignored": ignored(policy.CSRNotOurs, named("system:admin")),
		"an empty common name is ignored":    ignored(policy.CSRNotOurs, named("")),
		"a host that has no node name yet matches nothing": ignored(policy.CSRNameForeign,
			func(s *situation) { s.instances[0].NodeName = "" }),
		"a request is ignored when there are no instances": ignored(policy.CSRNameForeign,
			func(s *situation) { s.instances = nil }),
		"a request for a private signer is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.signer = "example.com/mesh" }),
		"a request for the legacy signer is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.signer = "kubernetes.io/legacy-unknown" }),
		"a request that somebody approved is ignored": ignored(policy.CSRNotOurs,
			decided(certificatesv1.CertificateApproved)),
		"a request that somebody denied is ignored": ignored(policy.CSRNotOurs,
			decided(certificatesv1.CertificateDenied)),
		"a request that failed is ignored": ignored(policy.CSRNotOurs,
			decided(certificatesv1.CertificateFailed)),
		"a request that has its certificate is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.status.Certificate = []byte("x") }),
		"text that is no request is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.request = []byte("hello") }),
		"a certificate in place of a request is ignored": ignored(policy.CSRNotOurs, func(s *situation) {
			s.request = []byte(strings.ReplaceAll(string(block([]byte{1})), "CERTIFICATE REQUEST", "CERTIFICATE"))
		}),
		"a request with a second one behind it is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.request = slices.Concat(s.pem(), s.pem()) }),
		"a request with text before it is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.request = append([]byte("# kubelet\n"), s.pem()...) }),
		"a request with PEM headers is ignored": ignored(policy.CSRNotOurs, withHeaders),
		"a request of a megabyte is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.request = append(s.pem(), bytes.Repeat([]byte("\n"), 1<<20)...) }),
		"a request with a thousand names is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.template.DNSNames = slices.Repeat([]string{"x"}, 1000) }),
		"a request with bytes behind its structure is ignored": ignored(policy.CSRNotOurs,
			func(s *situation) { s.mangle = func(der []byte) []byte { return append(der, 0) } }),
	}
}

// ofOverlay is the request that hybrid-overlay-node sends with kubelet's certificate. The same signer also signs the
// certificates of daemons.
func ofOverlay(s *situation) {
	s.subject = pkix.Name{CommonName: "system:ovn-node:" + nodeName, Organization: []string{"system:ovn-nodes"}}
	s.signer, s.expiration = certificatesv1.KubeAPIServerClientSignerName, new(int32(24*3600))
}

func decided(kind certificatesv1.RequestConditionType) func(*situation) {
	return func(s *situation) {
		s.status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind,
			Status: corev1.ConditionTrue}}
	}
}

func withHeaders(s *situation) {
	parsed, _ := pem.Decode(s.pem())
	parsed.Headers = map[string]string{"Proc-Type": "4,ENCRYPTED"}
	s.request = pem.EncodeToMemory(parsed)
}

// sha1WithRSA returns an algorithm that the standard library can verify but refuses to sign with.
func sha1WithRSA() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 5} }

func sha256WithRSA() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11} }

func shapeCases() map[string]adversarial {
	refused := func(reason policy.CSRReason, change func(*situation)) adversarial {
		return adversarial{base: firstKubelet, change: change, verdict: policy.CSRRefuse, reason: reason}
	}
	subject := func(change func(*pkix.Name)) adversarial {
		return refused(policy.CSRSubjectWrong, func(s *situation) { change(&s.subject) })
	}
	usages := func(usages ...certificatesv1.KeyUsage) adversarial {
		return refused(policy.CSRUsagesWrong, func(s *situation) { s.usages = usages })
	}
	extension := func(id ...int) func(*situation) {
		return func(s *situation) {
			s.template.ExtraExtensions = []pkix.Extension{{Id: id, Value: []byte{5, 0}}}
		}
	}
	const signature, client, server = certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth,
		certificatesv1.UsageServerAuth
	return map[string]adversarial{
		"no organization is refused": subject(func(n *pkix.Name) { n.Organization = nil }),
		"the masters' organization is refused": subject(
			func(n *pkix.Name) { n.Organization = []string{"system:masters"} }),
		"a second organization is refused": subject(
			func(n *pkix.Name) { n.Organization = []string{"system:nodes", "system:masters"} }),
		"our organization twice is refused": subject(
			func(n *pkix.Name) { n.Organization = []string{"system:nodes", "system:nodes"} }),
		"the organization in capitals is refused": subject(
			func(n *pkix.Name) { n.Organization = []string{"SYSTEM:NODES"} }),
		"the daemons' organization on a kubelet's name": subject(
			func(n *pkix.Name) { n.Organization = []string{"system:wicd-nodes"} }),
		"an organizational unit is refused": subject(
			func(n *pkix.Name) { n.OrganizationalUnit = []string{"x"} }),
		"a country is refused":                      subject(func(n *pkix.Name) { n.Country = []string{"CH"} }),
		"a serial number in the subject is refused": subject(func(n *pkix.Name) { n.SerialNumber = "1" }),
		"a second common name before ours is refused": subject(
			func(n *pkix.Name) { n.ExtraNames = twoNames("system:admin", n.CommonName) }),
		"an attribute of an unknown kind is refused": subject(
			func(n *pkix.Name) { n.ExtraNames = append(twoNames(n.CommonName), attribute("1", 1, 2, 3)) }),
		"a DNS name in a client request is refused": refused(policy.CSRNamesForbidden,
			func(s *situation) { s.template.DNSNames = []string{nodeName} }),
		"an address in a client request is refused": refused(policy.CSRNamesForbidden,
			func(s *situation) { s.template.IPAddresses = []net.IP{net.ParseIP(nodeAddress)} }),
		"an e-mail address in a client request is refused": refused(policy.CSRNamesForbidden,
			func(s *situation) { s.template.EmailAddresses = []string{"a@b.c"} }),
		"a URI in a client request is refused": refused(policy.CSRNamesForbidden,
			func(s *situation) { s.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }),
		"a name of another kind in a client request":    refused(policy.CSRExtensionForbidden, otherName),
		"basic constraints in a request are refused":    refused(policy.CSRExtensionForbidden, extension(2, 5, 29, 19)),
		"an unknown extension is refused":               refused(policy.CSRExtensionForbidden, extension(1, 2, 3, 4)),
		"server authentication for a client is refused": usages(signature, server),
		"both authentications at once are refused":      usages(signature, client, server),
		"client authentication alone is refused":        usages(client),
		"no usage at all is refused":                    usages(),
		"a usage given twice is refused":                usages(signature, client, client),
		"certificate signing is refused":                usages(signature, client, certificatesv1.UsageCertSign),
		"any usage is refused":                          usages(signature, client, certificatesv1.UsageAny),
		"key encipherment for an ECDSA key is refused":  usages(signature, client, certificatesv1.UsageKeyEncipherment),
		"a ten-year request is refused": refused(policy.CSRLifetimeLong,
			func(s *situation) { s.expiration = new(int32(10 * 365 * 24 * 3600)) }),
		"a request for a year and a second is refused": refused(policy.CSRLifetimeLong,
			func(s *situation) { s.expiration = new(int32(365*24*3600 + 1)) }),
		"a negative lifetime is refused": refused(policy.CSRLifetimeLong,
			func(s *situation) { s.expiration = new(int32(-1)) }),
		"an RSA key of 1024 bits is refused": refused(policy.CSRKeyWeak, func(s *situation) { s.key = rsaKey(1024) }),
		"an RSA key of 16384 bits is refused": refused(policy.CSRKeyWeak,
			func(s *situation) { s.request = assembled(s.subject, hugeKey(), sha256WithRSA()) }),
		"a key on the curve P-224 is refused": refused(policy.CSRKeyWeak,
			func(s *situation) { s.key = ecdsaKey(elliptic.P224()) }),
		"a key that can't sign is refused": refused(policy.CSRKeyWeak,
			func(s *situation) { s.request = assembled(s.subject, x25519(), sha256WithRSA()) }),
		"a signature over SHA-1 is refused": refused(policy.CSRKeyWeak, func(s *situation) {
			s.request = assembled(s.subject, rsaKey(2048).Public(), sha1WithRSA())
		}),
		"a signature by another key is refused": refused(policy.CSRSignatureWrong, func(s *situation) {
			s.request = assembled(s.subject, rsaKey(2048).Public(), sha256WithRSA())
		}),
		"a signature that was changed is refused": refused(policy.CSRSignatureWrong,
			func(s *situation) { s.mangle = flipLast }),
		"a kubelet's subject for the general client signer": refused(policy.CSRSignerWrong, func(s *situation) {
			s.signer = certificatesv1.KubeAPIServerClientSignerName
		}),
	}
}

func twoNames(names ...string) []pkix.AttributeTypeAndValue {
	var attributes []pkix.AttributeTypeAndValue
	for _, name := range names {
		attributes = append(attributes, attribute(name, 2, 5, 4, 3))
	}
	return attributes
}

func attribute(value string, id ...int) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: id, Value: value}
}

func flipLast(der []byte) []byte {
	der[len(der)-1] ^= 1
	return der
}

func hugeKey() *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), 16383)
	return &rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537}
}

func x25519() *ecdh.PublicKey { return must(ecdh.X25519().GenerateKey(rand.Reader)).PublicKey() }

// otherName adds an alternative name of a kind that the standard parser ignores: a user principal name.
func otherName(s *situation) {
	s.template.ExtraExtensions = append(s.template.ExtraExtensions, pkix.Extension{
		Id: asn1.ObjectIdentifier{2, 5, 29, 17},
		Value: sanValue(asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true,
			Bytes: []byte{5, 0}})})
}

func sanValue(names ...asn1.RawValue) []byte { return must(asn1.Marshal(names)) }

func requesterCases() map[string]adversarial {
	from := func(base func() situation, user string, groups ...string) adversarial {
		return adversarial{base: base, verdict: policy.CSRRefuse, reason: policy.CSRRequesterWrong,
			change: func(s *situation) { s.username, s.groups = user, groups }}
	}
	return map[string]adversarial{
		"a client request by another node is refused": from(firstKubelet, "system:node:win-ab",
			"system:nodes"),
		"a client request by a user is refused": from(firstKubelet, "mallory",
			"system:masters"),
		"a client request by nobody is refused": from(firstKubelet, ""),
		"a client request by a bootstrapper of another namespace is refused": from(firstKubelet,
			"system:serviceaccount:default:node-bootstrapper"),
		// OpenShift's approver approves such a request for every Machine that has no node yet, so this operator must
		// refuse it.
		"a client request by OpenShift's own bootstrapper is refused": from(firstKubelet,
			"system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"),
		"a client request by a look-alike of the bootstrapper is refused": from(firstKubelet, bootstrapper+"2"),
		"a client request by a bootstrap token's user is refused": from(firstKubelet,
			"system:bootstrap:abcdef", "system:bootstrappers"),
		"a client request by the operator is refused": from(firstKubelet, operator),
		"a client request by the node's own daemon is refused": from(kubeletRenewal,
			"system:wicd-node:win-a", "system:wicd-nodes"),
		"a renewal by somebody of the node's name but not its group": from(kubeletRenewal, "system:node:win-a",
			authenticated),
		"a serving request by another node is refused": from(serving, "system:node:win-ab",
			"system:nodes"),
		"a serving request by the bootstrapper is refused": from(serving, bootstrapper,
			"system:nodes"),
		"a serving request by the operator is refused": from(serving, operator, "system:nodes"),
		"a serving request by the node's name without its group is refused": from(serving, "system:node:win-a",
			authenticated),
		"a serving request by the node's name with a longer group is refused": from(serving, "system:node:win-a",
			"system:nodes:x"),
	}
}

func timingCases() map[string]adversarial {
	waits := func(base func() situation, reason policy.CSRReason, change func(*situation)) adversarial {
		return adversarial{base: base, verdict: policy.CSRWait, reason: reason, change: change}
	}
	phase := func(p v1alpha1.Phase) func(*situation) { return func(s *situation) { s.instances[0].Phase = p } }
	return map[string]adversarial{
		"a first request before the bootstrap waits": waits(firstKubelet, policy.CSRPhaseEarly,
			phase(v1alpha1.PhaseDelivering)),
		"a first request for a host that was never seen": waits(firstKubelet, policy.CSRPhaseEarly, phase("")),
		"a first request for a node that has joined waits": waits(firstKubelet, policy.CSRPhaseEarly,
			phase(v1alpha1.PhaseReady)),
		"a first request for a host being removed waits": waits(firstKubelet, policy.CSRInstanceLeaving,
			phase(v1alpha1.PhaseRemoving)),
		"a first request for a deleted instance waits": waits(firstKubelet, policy.CSRInstanceLeaving,
			func(s *situation) { s.instances[0].Leaving = true }),
		"a renewal for a deleted instance waits": waits(kubeletRenewal, policy.CSRInstanceLeaving,
			func(s *situation) { s.instances[0].Leaving = true }),
		"a first request waits while the Node is Ready": waits(firstKubelet, policy.CSRNodeServing,
			func(s *situation) { s.node = nodeA(corev1.ConditionTrue) }),
		"a first request waits while the Node is not adopted": waits(firstKubelet, policy.CSRNodeUnadopted,
			func(s *situation) { s.node = nodeA(corev1.ConditionFalse); s.node.Annotations = nil }),
		"a first request waits while the Node is newer than the adoption": waits(firstKubelet, policy.CSRNodeUnadopted,
			func(s *situation) {
				s.node, s.instances[0].NodeUID = nodeA(corev1.ConditionFalse), "uid-old"
			}),
		"a renewal waits for the Node": waits(kubeletRenewal, policy.CSRNodePending,
			func(s *situation) { s.node = nil }),
		"a serving request waits for the Node": waits(serving, policy.CSRNodePending,
			func(s *situation) { s.node = nil }),
		"a serving request waits for the adoption": waits(serving, policy.CSRNodeUnadopted,
			func(s *situation) { s.node.Annotations = nil }),
		"a serving request is not judged by another Node": waits(serving, policy.CSRNodePending,
			func(s *situation) { s.node.Name = "win-ab" }),
		"a name that two instances have waits": waits(firstKubelet, policy.CSRNameAmbiguous,
			func(s *situation) { s.instances[1].NodeName = nodeName }),
		"the daemon's first request before the bootstrap waits": waits(firstDaemon, policy.CSRPhaseEarly,
			phase(v1alpha1.PhasePreflight)),
		"the daemon's first request for a node that joined waits": waits(firstDaemon, policy.CSRPhaseEarly,
			phase(v1alpha1.PhaseReady)),
		"the daemon's renewal without a Node waits": waits(daemonRenewal, policy.CSRNodePending,
			func(s *situation) { s.node = nil }),
		"the daemon's renewal for a host that is leaving waits": waits(daemonRenewal, policy.CSRInstanceLeaving,
			phase(v1alpha1.PhaseRemoving)),
		"a broken request does not wait for what will never help": {base: firstKubelet, verdict: policy.CSRRefuse,
			reason: policy.CSRUsagesWrong, change: func(s *situation) { s.usages, s.instances[0].Phase = nil, "" }},
		"a Node of another instance is a reason to refuse": {base: serving, verdict: policy.CSRRefuse,
			reason: policy.CSRNodeForeign, change: ownedBy(contract.OperatorNamespace + "/b")},
		"a Node of a like-named instance elsewhere is not ours": {base: serving, verdict: policy.CSRRefuse,
			reason: policy.CSRNodeForeign, change: ownedBy("default/a")},
		"a first request for a Node of another instance": {base: firstKubelet, verdict: policy.CSRRefuse,
			reason: policy.CSRNodeForeign, change: ownedBy(contract.OperatorNamespace + "/b")},
		"a renewal for a Node of another instance is refused": {base: kubeletRenewal, verdict: policy.CSRRefuse,
			reason: policy.CSRNodeForeign, change: ownedBy(contract.OperatorNamespace + "/ab")},
		"a request with a condition that nobody knows is ignored": {base: firstKubelet, verdict: policy.CSRIgnore,
			reason: policy.CSRNotOurs, change: decided("Other")},
	}
}

func ownedBy(owner string) func(*situation) {
	return func(s *situation) {
		s.node = nodeA(corev1.ConditionFalse)
		s.node.Annotations = map[string]string{contract.InstanceAnnotation: owner}
	}
}

func servingCases() map[string]adversarial {
	refused := func(reason policy.CSRReason, change func(*situation)) adversarial {
		return adversarial{base: serving, verdict: policy.CSRRefuse, reason: reason, change: change}
	}
	dns := func(names ...string) adversarial {
		return refused(policy.CSRNameNotOfNode, func(s *situation) { s.template.DNSNames = names })
	}
	address := func(texts ...string) adversarial {
		return refused(policy.CSRNameNotOfNode, func(s *situation) {
			for _, text := range texts {
				s.template.IPAddresses = append(s.template.IPAddresses, net.ParseIP(text))
			}
		})
	}
	// claiming adds an address to the status of the Node, as an attacker with kubelet's rights could.
	claiming := func(kind corev1.NodeAddressType, text string) adversarial {
		return refused(policy.CSRNameNotOfNode, func(s *situation) {
			s.node.Status.Addresses = append(s.node.Status.Addresses, corev1.NodeAddress{Type: kind, Address: text})
			if ip := net.ParseIP(text); ip != nil {
				s.template.IPAddresses = append(s.template.IPAddresses, ip)
			} else {
				s.template.DNSNames = append(s.template.DNSNames, text)
			}
		})
	}
	// called renames the node and requests another name that the node lists: one that begins with the node's name.
	called := func(node, asked string) adversarial {
		return refused(policy.CSRNameNotOfNode, func(s *situation) {
			s.subject.CommonName, s.username = "system:node:"+node, "system:node:"+node
			s.instances[0].NodeName, s.node.Name = node, node
			s.node.Status.Addresses = append(s.node.Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: asked})
			s.template.DNSNames = []string{asked}
		})
	}
	return map[string]adversarial{
		"a host called kubernetes does not get the service's name": called("kubernetes", "kubernetes.default.svc"),
		"a host called kubernetes does not get the short name":     called("kubernetes", "kubernetes"),
		"a host called localhost does not get that name":           called("localhost", "localhost"),
		"a host called like a service does not get its long name": called("registry",
			"registry.apps.svc.cluster.local"),
		"the API server's service name is refused":         dns(nodeName, "kubernetes.default.svc"),
		"the API server's service address is refused":      address("172.30.0.1"),
		"another node's name is refused":                   dns(nodeName, "win-ab"),
		"a name that contains ours is refused for serving": dns("win-a1"),
		"a wildcard is refused":                            dns("*.corp.example"),
		"an empty DNS name is refused":                     dns(""),
		"our name in capitals is refused for serving":      dns("WIN-A"),
		"another node's address is refused":                address("10.0.0.12"),
		"an IPv6 address that the Node lacks is refused":   address("2001:db8::1"),
		"a loopback address is refused":                    address("127.0.0.1"),
		"the unspecified address is refused":               address("0.0.0.0"),
		"a service name that the Node claims is refused": claiming(corev1.NodeInternalDNS,
			"kubernetes.default.svc"),
		"a long service name that the Node claims is refused": claiming(corev1.NodeHostName,
			"kubernetes.default.svc.cluster.local"),
		"the API's name that the Node claims is refused": claiming(corev1.NodeInternalDNS,
			"api-int.cluster.example.com"),
		"an external name of another host is refused": claiming(corev1.NodeExternalDNS,
			"master-0.corp.example"),
		"localhost that the Node claims is refused":            claiming(corev1.NodeHostName, "localhost"),
		"a service address that the Node claims is refused":    claiming(corev1.NodeInternalIP, "172.30.0.1"),
		"a loopback address that the Node claims is refused":   claiming(corev1.NodeInternalIP, "127.0.0.1"),
		"a link-local address that the Node claims is refused": claiming(corev1.NodeInternalIP, "169.254.169.254"),
		"an IPv6-mapped service address is refused":            claiming(corev1.NodeInternalIP, "::ffff:172.30.0.1"),
		"no name at all is refused": refused(policy.CSRNamesMissing,
			func(s *situation) { s.template = x509.CertificateRequest{} }),
		"an e-mail address in a serving request is refused": refused(policy.CSRNamesForbidden,
			func(s *situation) { s.template.EmailAddresses = []string{"a@b.c"} }),
		"a URI in a serving request is refused": refused(policy.CSRNamesForbidden,
			func(s *situation) { s.template.URIs = []*url.URL{{Scheme: "https", Host: "x"}} }),
		"client authentication in a serving request is refused": refused(policy.CSRUsagesWrong,
			func(s *situation) { s.usages = append(s.usages, certificatesv1.UsageClientAuth) }),
		"a client's usages in a serving request are refused": refused(policy.CSRUsagesWrong,
			func(s *situation) { s.usages[1] = certificatesv1.UsageClientAuth }),
		"an address that another Node has too is refused": refused(policy.CSRNameNotOfNode,
			func(s *situation) { s.elsewhere = map[string]string{nodeAddress: "Node master-0"} }),
		"the masters' organization in a serving request": refused(policy.CSRSubjectWrong,
			func(s *situation) { s.subject.Organization = []string{"system:masters"} }),
		"an extension beside the names is refused": refused(policy.CSRExtensionForbidden, func(s *situation) {
			s.template.ExtraExtensions = []pkix.Extension{{Id: []int{1, 2, 3}, Value: []byte{5, 0}}}
		}),
		"a name of another kind beside good ones is refused": {base: serving, verdict: policy.CSRRefuse,
			reason: policy.CSRNamesForbidden, change: otherNameBesideGood},
		"a serving request addressed to the kubelet client signer": refused(policy.CSRNamesForbidden,
			func(s *situation) { s.signer = certificatesv1.KubeAPIServerClientKubeletSignerName }),
	}
}

func otherNameBesideGood(s *situation) {
	s.template = x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17},
		Value: sanValue(
			asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte(nodeName)},
			asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: []byte{5, 0}})}}}
}

func daemonCases() map[string]adversarial {
	denied := func(base func() situation, reason policy.CSRReason, change func(*situation)) adversarial {
		return adversarial{base: base, verdict: policy.CSRDeny, reason: reason, change: change}
	}
	from := func(base func() situation, user string, groups ...string) adversarial {
		return denied(base, policy.CSRRequesterWrong, func(s *situation) { s.username, s.groups = user, groups })
	}
	return map[string]adversarial{
		"a daemon's request by the daemon of another node": from(daemonRenewal, "system:wicd-node:win-ab",
			"system:wicd-nodes"),
		"a daemon's request by the node's kubelet": from(daemonRenewal, "system:node:win-a",
			"system:nodes"),
		"a daemon's request by the bootstrapper":                from(firstDaemon, bootstrapper),
		"a daemon's request by a user with the operator's mark": from(firstDaemon, "mallory"),
		"a daemon's request by a look-alike of the operator":    from(firstDaemon, operator+"-2"),
		"a daemon's renewal by its name but not its group": from(daemonRenewal, "system:wicd-node:win-a",
			authenticated),
		"the operator's request for no instance": denied(firstDaemon, policy.CSRRequesterWrong,
			func(s *situation) { s.annotations = nil }),
		"the operator's request made for another instance": denied(firstDaemon, policy.CSRRequesterWrong,
			func(s *situation) { s.annotations[contract.InstanceAnnotation] += "b" }),
		"the operator's request for a like-named instance": denied(firstDaemon, policy.CSRRequesterWrong,
			func(s *situation) { s.annotations[contract.InstanceAnnotation] = "default/a" }),
		"a daemon's request without a lifetime": denied(daemonRenewal, policy.CSRLifetimeMissing,
			func(s *situation) { s.expiration = nil }),
		"a daemon's request for 32 days": denied(daemonRenewal, policy.CSRLifetimeLong,
			func(s *situation) { s.expiration = new(int32(32 * 24 * 3600)) }),
		"a daemon's request for ten years": denied(firstDaemon, policy.CSRLifetimeLong,
			func(s *situation) { s.expiration = new(int32(10 * 365 * 24 * 3600)) }),
		"a daemon's request with the nodes' organization": denied(daemonRenewal, policy.CSRSubjectWrong,
			func(s *situation) { s.subject.Organization = []string{"system:nodes"} }),
		"a daemon's request with both organizations": denied(daemonRenewal, policy.CSRSubjectWrong,
			func(s *situation) { s.subject.Organization = []string{"system:wicd-nodes", "system:nodes"} }),
		"a daemon's request with a DNS name": denied(daemonRenewal, policy.CSRNamesForbidden,
			func(s *situation) { s.template.DNSNames = []string{nodeName} }),
		"a daemon's request for serving": denied(daemonRenewal, policy.CSRUsagesWrong,
			func(s *situation) { s.usages[1] = certificatesv1.UsageServerAuth }),
		"a daemon's request to the kubelets' signer": denied(daemonRenewal, policy.CSRSignerWrong,
			func(s *situation) { s.signer = certificatesv1.KubeAPIServerClientKubeletSignerName }),
		"a daemon's request to the serving signer": denied(daemonRenewal, policy.CSRSignerWrong,
			func(s *situation) { s.signer = certificatesv1.KubeletServingSignerName }),
		"a daemon's renewal for a Node of another instance": denied(daemonRenewal, policy.CSRNodeForeign,
			func(s *situation) { ownedBy("x/y")(s) }),
		"the operator's request when a Linux node bears the name": denied(firstDaemon, policy.CSRNodeForeign,
			linuxNode),
	}
}

func linuxNode(s *situation) {
	s.node = nodeA(corev1.ConditionTrue)
	s.node.Annotations, s.node.Labels = nil, map[string]string{corev1.LabelOSStable: "linux"}
}

func TestA07_WithoutAnOperatorNobodyVouchesForADaemon(t *testing.T) {
	t.Parallel()
	s := firstDaemon()
	s.username = ""
	in := s.input()
	in.OperatorUser = ""
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRDeny || got.Reason != policy.CSRRequesterWrong {
		t.Errorf("decided %s %s", got.Verdict, got.Reason)
	}
}

func TestARequestThatIsBeingDeletedIsIgnored(t *testing.T) {
	t.Parallel()
	in := firstKubelet().input()
	in.CSR.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	if got := policy.DecideCSR(in); got.Verdict != policy.CSRIgnore {
		t.Errorf("decided %s %s", got.Verdict, got.Reason)
	}
}

func TestAnInstanceIsReadWithItsAddresses(t *testing.T) {
	t.Parallel()
	instance := &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a",
			DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}},
		Spec: v1alpha1.WindowsInstanceSpec{Address: "host7.lab.example"},
		Status: v1alpha1.WindowsInstanceStatus{NodeName: nodeName, NodeUID: "u", Phase: v1alpha1.PhaseReady,
			Host: &v1alpha1.HostInfo{NodeIP: nodeAddress}},
	}
	got := policy.CSRInstanceOf(instance)
	want := []string{"host7.lab.example", nodeAddress}
	if !got.Leaving || got.NodeName != nodeName || got.NodeUID != "u" || got.Phase != v1alpha1.PhaseReady ||
		!slices.Equal(got.Addresses, want) {
		t.Errorf("read %+v", got)
	}
}
