package csr

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// recheck is a safety net for a waiting request. Normally, an event about its instance or Node triggers the next check.
// Kubelet waits much longer than this for a decision.
const recheck = time.Minute

// Reconciler decides about pending requests.
type Reconciler struct {
	// client reads through the cache and writes to the API server. `live` reads from the API server.
	client  client.Client
	live    client.Reader
	events  events.EventRecorder
	options Options
	used    used
}

var _ reconcile.Reconciler = (*Reconciler)(nil)

// Reconcile decides about one request. If the request is already decided, Reconcile does nothing.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	csr := &certificatesv1.CertificateSigningRequest{}
	switch err := r.client.Get(ctx, request.NamespacedName, csr); {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the request: %w", err)
	}
	claim, ours := policy.ClaimOf(csr)
	if !ours && (csr.Spec.Username != r.options.OperatorUser || !policy.CSRPending(csr)) {
		return ctrl.Result{}, nil
	}
	decision, err := r.decide(ctx, csr, claim)
	if problem, ok := contract.AsProblem(err); ok { // a problem of the cluster that a user can fix
		logf.FromContext(ctx).V(1).Info("certificate request waits", "reason", problem.Reason, "detail", problem.Detail)
		return ctrl.Result{RequeueAfter: recheck}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("gathering what %s depends on: %w", csr.Name, err)
	}
	first := policy.IsFirstKubeletRequest(csr, r.options.BootstrapUser)
	if first && decision.Verdict == policy.CSRApprove && claim.Kind == policy.CSRHost {
		if err = r.bindKey(ctx, claim, decision.Instance); err != nil {
			return ctrl.Result{}, fmt.Errorf("recording the key of %s: %w", csr.Name, err)
		}
	} else if first && decision.Verdict == policy.CSRApprove &&
		!r.used.claim(policy.CredentialOf(csr), claim.Request.RawSubjectPublicKeyInfo) {
		return ctrl.Result{RequeueAfter: time.Second}, nil // another key was approved first: decide again
	}
	if decision.Verdict == policy.CSRRefuse && decision.Reason == policy.CSRKeyOfAnother {
		r.options.UsedTokens.ids.Add(policy.CredentialOf(csr), true, usedLife)
	}
	return r.carryOut(ctx, csr, decision)
}

// decide lets the policy decide from the cached objects first. If this decision is a refusal or a denial that depends
// on the cluster, decide reads the Node from the API server and lets the policy decide again, because a denial is
// final. Other decisions cost the API server no request, so that thousands of foreign requests delay nothing. For an
// approval, a Node from the cache is good enough: the operator reads the Node from the API server before it creates a
// token, and a token is valid for one key.
func (r *Reconciler) decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	claim policy.CSRClaim) (policy.CSRDecision, error) {
	in, err := r.gather(ctx, r.client, csr, claim)
	if err != nil {
		return policy.CSRDecision{}, err
	}
	decision := policy.DecideCSR(in)
	if decision.Settled || decision.Verdict != policy.CSRRefuse && decision.Verdict != policy.CSRDeny {
		return decision, nil
	}
	if in, err = r.gather(ctx, r.live, csr, claim); err != nil {
		return policy.CSRDecision{}, err
	}
	return policy.DecideCSR(in), nil
}

func (r *Reconciler) carryOut(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	decision policy.CSRDecision) (ctrl.Result, error) {
	log := logf.FromContext(ctx).WithValues("verdict", decision.Verdict, "reason", decision.Reason, "detail",
		decision.Message)
	switch decision.Verdict {
	case policy.CSRApprove, policy.CSRDeny:
		err := r.writeDecision(ctx, csr, decision)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			log.V(1).Info("certificate request changed concurrently")
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
		log.Info("certificate request decided")
		r.tell(csr, decision)
	case policy.CSRRefuse:
		log.Info("certificate request left pending")
		r.tell(csr, decision)
	case policy.CSRWait:
		log.V(1).Info("certificate request waits")
		return ctrl.Result{RequeueAfter: recheck}, nil
	case policy.CSRIgnore:
		log.V(1).Info("certificate request is not ours")
	}
	return ctrl.Result{}, nil
}

func (r *Reconciler) writeDecision(ctx context.Context, csr *certificatesv1.CertificateSigningRequest,
	decision policy.CSRDecision) error {
	kind := certificatesv1.CertificateApproved
	if decision.Verdict == policy.CSRDeny {
		kind = certificatesv1.CertificateDenied
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: string(decision.Reason), Message: decision.Message,
	})
	if err := r.client.SubResource("approval").Update(ctx, csr); err != nil {
		return fmt.Errorf("writing the decision about %s: %w", csr.Name, err)
	}
	return nil
}
