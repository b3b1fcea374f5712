package csr

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/policy"
)

// entryBytes is about what an entry of a list or a map takes in memory beside its text: an owner takes
// six words and four strings, for as little as four bytes of text.
const entryBytes = 128

// Trim is what the cache keeps of an object, for cache.ByObject. Whoever may create requests, as every
// kubelet may, can fill them up to the size of an object of etcd, and the cache holds those of the
// whole cluster for a day, or for ever where they have a finalizer. Of one that is larger than any that is
// approved, next to nothing is kept. A smaller one keeps all its metadata: an approval writes what is
// here, and would take away what is missing.
func Trim(o any) (any, error) {
	csr, ok := o.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return o, nil
	}
	csr.ManagedFields = nil
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		csr.Status.Certificate = nil // only those of daemons are handed over
	}
	if memoryOf(csr) > 2*policy.MaxRequestBytes {
		return bare(csr), nil
	}
	return csr, nil
}

// memoryOf is about how much memory a request takes.
func memoryOf(csr *certificatesv1.CertificateSigningRequest) int {
	entries := len(csr.Annotations) + len(csr.Labels) + len(csr.Finalizers) + len(csr.OwnerReferences) +
		len(csr.Spec.Groups) + len(csr.Spec.Usages) + len(csr.Status.Conditions)
	for _, values := range csr.Spec.Extra {
		entries += 1 + len(values)
	}
	return csr.Size() + entries*entryBytes
}

// bare is a request without what anybody can fill: which one it is, and whether it is decided.
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
