package program_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

func TestHybridOverlayMakesTheNetworkOfItsNodesSubnet(t *testing.T) {
	t.Parallel()
	b, admin := join(t, "overlay", program.Options{})
	ca, _ := keyPair(t)
	b.write(t, contract.PathBootstrapCA, ca)
	b.write(t, contract.DirCNIConfig+`\keep`, "")
	b.start(t, contract.ServiceHybridOverlay,
		`C:\k\hybrid-overlay-node.exe --node=`+b.node+` --bootstrap-kubeconfig=C:\k\kubeconfig `+
			`--cert-dir=C:\k\cni\config --cert-duration=24h --windows-service --logfile=C:\var\log\hybrid-overlay\hybrid-overlay.log `+
			`--k8s-apiserver=https://api-int.example.com:6443 --k8s-cacert=C:\k\bootstrap-ca.crt --hybrid-overlay-vxlan-port=9898 --loglevel=5`)
	for _, subnet := range []string{"10.132.7.0/24", "10.132.8.0/24"} {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, contract.HybridSubnetAnnotation, subnet)
		if _, err := admin.CoreV1().Nodes().Patch(t.Context(), b.node, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the network "+subnet, func() error {
			network, err := b.Host().Network.HNSNetwork(t.Context(), contract.HybridOverlayNetwork)
			if err == nil && (network.Subnet.String() != subnet || network.ManagementIP != b.Address()) {
				err = fmt.Errorf("the network is %+v", network)
			}
			return err
		})
	}
	approveOverlay(t, admin, b)
	eventually(t, "the gateway's annotation", func() error {
		node, err := admin.CoreV1().Nodes().Get(t.Context(), b.node, metav1.GetOptions{})
		if err == nil && !regexp.MustCompile(
			`^00:15:5d(:[0-9a-f]{2}){3}$`).MatchString(node.Annotations[contract.HybridMACAnnotation]) {
			err = fmt.Errorf("annotations are %v", node.Annotations)
		}
		return err
	})
}

// approveOverlay approves the hybrid overlay's certificate request, as the cluster's network does. It waits until the
// hybrid overlay has the certificate.
func approveOverlay(t *testing.T, admin kubernetes.Interface, b box) {
	t.Helper()
	requests := admin.CertificatesV1().CertificateSigningRequests()
	eventually(t, "the overlay's request", func() error {
		list, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, csr := range list.Items {
			block, _ := pem.Decode(csr.Spec.Request)
			request, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil || request.Subject.CommonName != "system:ovn-node:"+b.node {
				continue
			}
			if csr.Spec.Username != contract.KubeletUserPrefix+b.node || *csr.Spec.ExpirationSeconds != 24*3600 ||
				csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName ||
				!slices.Equal(request.Subject.Organization, []string{"system:ovn-nodes"}) {
				t.Errorf("the request has the subject %s: %+v", request.Subject, csr.Spec)
			}
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved"}}
			_, err = requests.UpdateApproval(t.Context(), csr.Name, &csr, metav1.UpdateOptions{})
			return err
		}
		return errors.New("there is no certificate")
	})
	eventually(t, "the overlay's certificate", func() error {
		_, err := b.Host().Files.Stat(contract.DirCNIConfig + `\ovnkube-client-current.pem`)
		return err
	})
}
