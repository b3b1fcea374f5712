package csr

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

// tell reports in events on the request and on its instance that a request was denied or left pending. An approval
// needs no event, because the request's condition shows it.
func (r *Reconciler) tell(csr *certificatesv1.CertificateSigningRequest, decision policy.CSRDecision) {
	action := "Refuse"
	switch decision.Verdict {
	case policy.CSRApprove:
		return
	case policy.CSRDeny:
		action = "Deny"
	}
	r.events.Eventf(csr, nil, corev1.EventTypeWarning, string(decision.Reason), action, "%s", decision.Message)
	if decision.Instance == nil {
		return
	}
	instance := &v1alpha1.WindowsInstance{}
	instance.Namespace, instance.Name = decision.Instance.Namespace, decision.Instance.Name
	instance.UID = decision.Instance.UID
	r.events.Eventf(instance, csr, corev1.EventTypeWarning, string(decision.Reason), action,
		"certificate request %s by %.100s: %s", csr.Name, csr.Spec.Username, decision.Message)
}
