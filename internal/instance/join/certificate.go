package join

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// daemonCertificate is the requested lifetime of a daemon's certificate. The daemon renews the certificate after about
// two thirds of this time, so a node may be off for more than four days. 500 nodes create about 50 requests a day.
const daemonCertificate = 14 * 24 * time.Hour

// requestCertificate submits the daemon's certificate request. The name of the created object depends only on the
// request and the node, so a repeated call creates nothing.
func (j *Join) requestCertificate(ctx context.Context, instance *v1alpha1.WindowsInstance,
	request []byte) (name string, err error) {
	hash := sha256.Sum256(request)
	name = "wicd-" + instance.Status.NodeName + "-" + hex.EncodeToString(hash[:5])
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{contract.InstanceAnnotation: instance.Namespace + "/" + instance.Name},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           request,
			SignerName:        certificatesv1.KubeAPIServerClientSignerName,
			ExpirationSeconds: ptr.To(int32(daemonCertificate.Seconds())),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature,
				certificatesv1.UsageClientAuth},
		},
	}
	if err = j.Client.Create(ctx, csr); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("requesting the daemon's certificate: %w", err)
	}
	return name, nil
}

// certificate returns the certificate of a request, or nil while the request is pending.
func certificate(ctx context.Context, cached client.Reader, name string) ([]byte, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	err := cached.Get(ctx, types.NamespacedName{Name: name}, csr)
	if apierrors.IsNotFound(err) {
		return nil, nil // the cache doesn't show the request yet
	}
	if err != nil {
		return nil, fmt.Errorf("reading certificate request %s: %w", name, err)
	}
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return nil, contract.NewProblem(contract.ReasonCertificateDenied, "certificate request %s: %s %s", name,
				c.Reason, c.Message)
		}
	}
	return csr.Status.Certificate, nil
}
