package policy_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	nodeName      = "win-a"
	operator      = "system:serviceaccount:openshift-windows-machine-config-operator:windows-machine-config-operator"
	bootstrapper  = "system:serviceaccount:openshift-windows-machine-config-operator:node-bootstrapper"
	nodeAddress   = "10.0.0.11"
	hostAddress   = "192.168.7.11"
	authenticated = "system:authenticated"
	tokenID       = "JTI=a"
)

// situation is a request and the state of the cluster when it is decided. The method input converts it to a CSRInput.
type situation struct {
	subject     pkix.Name
	template    x509.CertificateRequest // without the subject and the key
	key         crypto.Signer
	mangle      func(der []byte) []byte
	request     []byte // PEM; if set, replaces the request built from the fields above
	signer      string
	usages      []certificatesv1.KeyUsage
	username    string
	groups      []string
	annotations map[string]string
	expiration  *int32
	status      certificatesv1.CertificateSigningRequestStatus
	instances   []policy.CSRInstance
	node        *corev1.Node
	elsewhere   map[string]string
	// credential is the ID of the requester's token.
	credential string
}

func instanceA() policy.CSRInstance {
	return policy.CSRInstance{Namespace: contract.OperatorNamespace, Name: "a", NodeName: nodeName,
		Phase: v1alpha1.PhaseBootstrapping, Credentials: []string{tokenID},
		Addresses: []string{hostAddress, nodeAddress, "203.0.113.11", nodeName + ".corp.example"}}
}

func instanceB() policy.CSRInstance {
	return policy.CSRInstance{Namespace: contract.OperatorNamespace, Name: "b", NodeName: "win-ab",
		Phase:     v1alpha1.PhaseBootstrapping,
		Addresses: []string{"win-ab.example.com"}}
}

// nodeA returns the adopted Node of instance a, Ready or not.
func nodeA(ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "uid-a",
			Labels:      map[string]string{corev1.LabelOSStable: "windows"},
			Annotations: map[string]string{contract.InstanceAnnotation: contract.OperatorNamespace + "/a"}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeAddress},
				{Type: corev1.NodeExternalIP, Address: "203.0.113.11"},
				{Type: corev1.NodeHostName, Address: nodeName},
				{Type: corev1.NodeInternalDNS, Address: nodeName + ".corp.example"},
			},
		},
	}
}

// firstKubelet returns a host's first client request. firstDaemon and the functions for renewals return other kinds of
// requests. All of these requests must be approved.
func firstKubelet() situation {
	return situation{
		subject:  pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}},
		signer:   certificatesv1.KubeAPIServerClientKubeletSignerName,
		usages:   []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		username: bootstrapper, credential: tokenID,
		groups:    []string{"system:serviceaccounts", authenticated},
		instances: []policy.CSRInstance{instanceA(), instanceB()},
	}
}

func kubeletRenewal() situation {
	s := firstKubelet()
	s.username, s.groups = "system:node:"+nodeName, []string{"system:nodes", authenticated}
	s.instances[0].Phase = v1alpha1.PhaseReady
	s.node = nodeA(corev1.ConditionTrue)
	return s
}

func serving() situation {
	s := kubeletRenewal()
	s.signer = certificatesv1.KubeletServingSignerName
	s.usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	s.template.DNSNames = []string{nodeName}
	s.template.IPAddresses = []net.IP{net.ParseIP(nodeAddress)}
	return s
}

func firstDaemon() situation {
	s := firstKubelet()
	s.subject = pkix.Name{CommonName: "system:wicd-node:" + nodeName, Organization: []string{"system:wicd-nodes"}}
	s.signer = certificatesv1.KubeAPIServerClientSignerName
	s.username = operator
	s.annotations = map[string]string{contract.InstanceAnnotation: contract.OperatorNamespace + "/a"}
	s.expiration = new(int32(14 * 24 * 3600))
	return s
}

func daemonRenewal() situation {
	s := firstDaemon()
	s.username, s.groups, s.annotations = "system:wicd-node:"+nodeName, []string{"system:wicd-nodes", authenticated},
		nil
	s.instances[0].Phase = v1alpha1.PhaseReady
	s.node = nodeA(corev1.ConditionTrue)
	return s
}

// input converts the situation to the input of a decision.
func (s situation) input() policy.CSRInput {
	request := s.request
	if request == nil {
		request = s.pem()
	}
	return policy.CSRInput{
		CSR: &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "csr-1", Annotations: s.annotations},
			Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: s.signer, Usages: s.usages,
				Username: s.username, Groups: s.groups, ExpirationSeconds: s.expiration,
				Extra: map[string]certificatesv1.ExtraValue{contract.CredentialIDExtra: {s.credential}}},
			Status: s.status,
		},
		Instances:      s.instances,
		Node:           s.node,
		OperatorUser:   operator,
		BootstrapUser:  contract.BootstrapUser(contract.OperatorNamespace),
		Elsewhere:      s.elsewhere,
		ServiceNetwork: netip.MustParsePrefix("172.30.0.0/16"),
	}
}

func (s situation) pem() []byte {
	key := s.key
	if key == nil {
		key = ecdsaKey(elliptic.P256())
	}
	template := s.template
	template.Subject = s.subject
	der := must(x509.CreateCertificateRequest(rand.Reader, &template, key))
	if s.mangle != nil {
		der = s.mangle(der)
	}
	return block(der)
}

func block(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func ecdsaKey(curve elliptic.Curve) crypto.Signer { return must(ecdsa.GenerateKey(curve, rand.Reader)) }

func rsaKey(bits int) crypto.Signer { return must(rsa.GenerateKey(rand.Reader, bits)) }

// must is for calls that fail only if the random source fails.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// assembled builds a request from a subject and a public key, with an invalid signature. It is for keys and
// algorithms that the standard library refuses to sign with.
func assembled(subject pkix.Name, public crypto.PublicKey, algorithm asn1.ObjectIdentifier) []byte {
	spki := must(x509.MarshalPKIXPublicKey(public))
	type tbs struct {
		Version    int
		Subject    pkix.RDNSequence
		Key        asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0,set"`
	}
	return block(must(asn1.Marshal(struct {
		TBS       tbs
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		TBS:       tbs{Subject: subject.ToRDNSequence(), Key: asn1.RawValue{FullBytes: spki}},
		Algorithm: pkix.AlgorithmIdentifier{Algorithm: algorithm, Parameters: asn1.NullRawValue},
		Signature: asn1.BitString{Bytes: slices.Repeat([]byte{7}, 256), BitLength: 256 * 8},
	})))
}
