package csr

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/policy"
)

// entryBytes is roughly the memory of one entry of a list or map, not counting text. Owner references need the most.
const entryBytes = 128

// Trim reduces an object before it is stored in the cache: see cache.ByObject. Trim protects the operator's memory,
// because every kubelet may create requests as large as etcd allows, and the cache stores the cluster's requests for a
// day or longer. If a request is too large to be approved, Trim keeps only its identity and its decision. Otherwise,
// Trim removes only managed fields from the metadata: an approval writes the cached object, and so deletes all metadata
// that the cached object lacks.
func Trim(o any) (any, error) {
	csr, ok := o.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return o, nil
	}
	csr.ManagedFields = nil
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		csr.Status.Certificate = nil // the operator only needs the certificates of daemons
	}
	if memoryOf(csr) > 2*policy.MaxRequestBytes {
		return bare(csr), nil
	}
	return csr, nil
}

// memoryOf estimates how much memory a request needs.
func memoryOf(csr *certificatesv1.CertificateSigningRequest) int {
	entries := len(csr.Annotations) + len(csr.Labels) + len(csr.Finalizers) + len(csr.OwnerReferences) +
		len(csr.Spec.Groups) + len(csr.Spec.Usages) + len(csr.Status.Conditions)
	for _, values := range csr.Spec.Extra {
		entries += 1 + len(values)
	}
	return csr.Size() + entries*entryBytes
}

// The function `bare` returns a copy of a request without the fields that the sender of the request can fill.
func bare(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	kept := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: csr.Name, UID: csr.UID, ResourceVersion: csr.ResourceVersion,
			CreationTimestamp: csr.CreationTimestamp, DeletionTimestamp: csr.DeletionTimestamp},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: csr.Spec.SignerName,
			Username: csr.Spec.Username},
	}
	for _, c := range csr.Status.Conditions {
		kept.Status.Conditions = append(kept.Status.Conditions,
			certificatesv1.CertificateSigningRequestCondition{Type: c.Type, Status: c.Status})
	}
	return kept
}
