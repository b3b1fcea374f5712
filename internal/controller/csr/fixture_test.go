package csr

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	namespace    = contract.OperatorNamespace
	nodeName     = "win-a"
	nodeAddress  = "10.0.0.11"
	tokenID      = "JTI=a"
	bootstrapper = "system:serviceaccount:openshift-windows-machine-config-operator:node-bootstrapper"
)

// requestText returns a certificate request for a new key, as PEM.
func requestText(t *testing.T, user, group string, dns []string, addresses ...string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{group}},
		DNSNames: dns}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// kubeletClient returns the first request of a node's kubelet.
func kubeletClient(t *testing.T, name, node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    requestText(t, contract.KubeletUserPrefix+node, contract.KubeletGroup, nil),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			Username:   bootstrapper,
			Extra:      map[string]certificatesv1.ExtraValue{contract.CredentialIDExtra: {tokenID}},
		},
	}
}

func kubeletServing(t *testing.T, name, node string, addresses ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := kubeletClient(t, name, node)
	csr.Spec.Request = requestText(t, contract.KubeletUserPrefix+node, contract.KubeletGroup, []string{node},
		addresses...)
	csr.Spec.SignerName = certificatesv1.KubeletServingSignerName
	csr.Spec.Usages[1] = certificatesv1.UsageServerAuth
	csr.Spec.Username, csr.Spec.Groups = contract.KubeletUserPrefix+node,
		[]string{contract.KubeletGroup, "system:authenticated"}
	return csr
}

// daemonFirst returns the request that the operator submits for a host.
func daemonFirst(t *testing.T, name, node, instance string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := kubeletClient(t, name, node)
	csr.Annotations = map[string]string{contract.InstanceAnnotation: namespace + "/" + instance}
	csr.Spec.Request = requestText(t, contract.DaemonUserPrefix+node, contract.DaemonGroup, nil)
	csr.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
	csr.Spec.ExpirationSeconds = new(int32(14 * 24 * 3600))
	csr.Spec.Username = OperatorUser(namespace)
	return csr
}

func instance(name, node, address string, phase v1alpha1.Phase) *v1alpha1.WindowsInstance {
	return &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.WindowsInstanceSpec{Address: address, Port: 22, Username: "Administrator"},
		Status: v1alpha1.WindowsInstanceStatus{NodeName: node, Phase: phase,
			BootstrapCredentials: []string{tokenID}},
	}
}

// node returns an adopted Node.
func node(name, instance string, ready corev1.ConditionStatus, addresses ...string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{contract.InstanceAnnotation: namespace + "/" + instance}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
	for _, address := range addresses {
		n.Status.Addresses = append(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return n
}

// bootstrapUser returns the user of a host that joins with a bootstrap token on OpenShift.
func bootstrapUser() string { return contract.BootstrapUser(contract.OperatorNamespace) }
