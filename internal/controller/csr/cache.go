package csr

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/internal/policy"
)

// Trim is what the cache keeps of an object, for cache.ByObject. Whoever may create requests, as every
// kubelet may, can fill them up to the size of an object of etcd, and the cache holds those of the
// whole cluster for a day. One above policy.MaxRequestBytes is never approved, so its content goes; no
// such object is ever written back.
func Trim(o any) (any, error) {
	csr, ok := o.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return o, nil
	}
	csr.ManagedFields = nil
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		csr.Status.Certificate = nil // only those of daemons are handed over
	}
	size := len(csr.Spec.Request) + len(csr.Status.Certificate)
	for _, texts := range []map[string]string{csr.Annotations, csr.Labels} {
		for key, value := range texts {
			size += len(key) + len(value)
		}
	}
	for key, values := range csr.Spec.Extra {
		size += len(key)
		for _, value := range values {
			size += len(value)
		}
	}
	if size > 2*policy.MaxRequestBytes {
		csr.Spec.Request, csr.Spec.Extra, csr.Status.Certificate = nil, nil, nil
		csr.Annotations, csr.Labels = nil, nil
	}
	return csr, nil
}
