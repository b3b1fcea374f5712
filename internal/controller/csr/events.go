package csr

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

// tell reports a decision in events at the request and at its instance. It doesn't report waiting or foreign requests.
func (r *Reconciler) tell(csr *certificatesv1.CertificateSigningRequest, decision policy.CSRDecision) {
	kind, action := corev1.EventTypeWarning, "Refuse"
	switch decision.Verdict {
	case policy.CSRApprove:
		kind, action = corev1.EventTypeNormal, "Approve"
	case policy.CSRDeny:
		action = "Deny"
	}
	r.events.Eventf(csr, nil, kind, string(decision.Reason), action, "%s", decision.Message)
	if decision.Instance == nil {
		return
	}
	instance := &v1alpha1.WindowsInstance{}
	instance.Namespace, instance.Name = decision.Instance.Namespace, decision.Instance.Name
	instance.UID = decision.Instance.UID
	if decision.Verdict != policy.CSRApprove {
		r.events.Eventf(instance, csr, kind, string(decision.Reason), action, "certificate request %s by %.100s: %s",
			csr.Name, csr.Spec.Username, decision.Message)
	}
}
