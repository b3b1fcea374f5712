package openshift

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// OverlayApproved is the network approver's reason when it approves a request.
const OverlayApproved = "AutoApproved"

// overlayUser is the user name of OVN-Kubernetes' programs on a node, without the node's name.
const overlayUser = "system:ovn-node:"

// ApproveOverlays simulates the approver of OVN-Kubernetes. It approves a request for the certificate of a node's
// hybrid overlay if the requester is the node's kubelet. It runs until ctx ends.
func ApproveOverlays(ctx context.Context, config *rest.Config) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	requests := clients.CertificatesV1().CertificateSigningRequests()
	approve := func(object any) {
		csr, ok := object.(*certificatesv1.CertificateSigningRequest)
		if !ok || len(csr.Status.Conditions) > 0 || !isOverlays(csr) {
			return
		}
		csr = csr.DeepCopy()
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: OverlayApproved,
			Message: "Auto-approved CSR of " + csr.Spec.Username}}
		_, _ = requests.UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}) // the requester retries
	}
	watch := cache.NewListWatchFromClient(clients.CertificatesV1().RESTClient(), "certificatesigningrequests",
		metav1.NamespaceAll, fields.Everything())
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: watch, ObjectType: &certificatesv1.CertificateSigningRequest{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: approve},
	})
	informer.RunWithContext(ctx)
	return nil
}

// isOverlays reports whether a kubelet requests a certificate for the overlay of the kubelet's node.
func isOverlays(csr *certificatesv1.CertificateSigningRequest) bool {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return false
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return false
	}
	node, ok := strings.CutPrefix(request.Subject.CommonName, overlayUser)
	return ok && csr.Spec.Username == "system:node:"+node
}
