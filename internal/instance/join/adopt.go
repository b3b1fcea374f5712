package join

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// adopt waits for the host's Node, and marks it. If the node is not Ready at the desired revision yet, adopt cordons it
// until the join is complete. If the Node has a mark, adopt reads the Node from the API server, because the cache may
// still show a deleted Node of an earlier instance. If a deleted Node has no mark, the API server refuses the write.
func (j *Join) adopt(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	node, err := j.Nodes.Get(ctx, instance.Status.NodeName)
	if err == nil && node != nil && node.Annotations[contract.InstanceAnnotation] != "" {
		node, err = j.Nodes.Live(ctx, instance.Status.NodeName)
	}
	if node != nil && !node.DeletionTimestamp.IsZero() {
		node = nil // the Node disappears when its finalizers are removed
	}
	if err != nil {
		return j.retryInSlot(instance, session, err)
	}
	if node == nil {
		return j.awaitNode(ctx, instance, session)
	}
	if problem := journey.Foreign(node, instance); problem != nil {
		return journey.Fail(problem)
	}
	desired, _, err := j.Revisions.Of(ctx, instance)
	if err != nil {
		return journey.WaitForCluster(err)
	}
	fields := journey.NodeFields{Instance: instance, KeyHash: session.Key.Hash, Revision: desired.Revision}
	if !journey.NodeReadyAt(node, desired.Revision) {
		fields.Cordon = true
	}
	if err = j.Nodes.Request(ctx, node, fields); err != nil {
		return j.retryInSlot(instance, session, err)
	}
	instance.Status.NodeUID, instance.Status.DesiredRevision = string(node.UID), desired.Revision
	return journey.Done()
}

func (j *Join) awaitNode(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	if j.isStranded(instance) {
		node, err := j.Nodes.Live(ctx, instance.Status.NodeName)
		if err != nil {
			return j.retryInSlot(instance, session, err)
		}
		if node == nil || !node.DeletionTimestamp.IsZero() {
			return stranded(instance)
		}
	}
	return j.waitInSlot(instance, contract.ReasonNodePending, "kubelet on %s has not registered node %s yet",
		instance.Spec.Address, instance.Status.NodeName)
}

// handOver gives the daemon its certificate and starts the daemon as a service. After that, the join needs no SSH.
func (j *Join) handOver(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	if session.CSR == "" {
		return restart()
	}
	certificate, err := certificate(ctx, j.Client, session.CSR)
	if err != nil {
		return j.retryInSlot(instance, session, err)
	}
	if len(certificate) == 0 {
		return j.waitInSlot(instance, contract.ReasonCertificatePending, "certificate request %s is not signed yet",
			session.CSR)
	}
	_, facts, err := j.Revisions.Of(ctx, instance)
	if err != nil {
		return journey.WaitForCluster(err)
	}
	_, err = journey.Call[contract.HandoverAnswer](ctx, session.Conn, contract.VerbHandover,
		contract.HandoverRequest{
			NodeName: instance.Status.NodeName, Certificate: certificate,
			APIServer: facts.APIServer, CA: []byte(facts.BootstrapCA), Namespace: j.Namespace,
		})
	if err != nil {
		return journey.Fail(err)
	}
	j.Slots.Release(client.ObjectKeyFromObject(instance))
	session.End()
	return journey.Done()
}

// confirm waits until the daemon reports the desired revision and the Node is Ready. Then it removes the operator's
// cordon. confirm reads the requested revision from the status, because a cached Node may not show it yet.
func (j *Join) confirm(ctx context.Context, instance *v1alpha1.WindowsInstance, _ *journey.Session) journey.Outcome {
	node, err := j.Nodes.Adopted(ctx, instance)
	if err != nil {
		return journey.Retry(err)
	}
	if node == nil {
		return journey.Fail(contract.NewProblem(contract.ReasonNodePending, "node %s vanished",
			instance.Status.NodeName))
	}
	if problem := journey.Foreign(node, instance); problem != nil {
		return journey.Fail(problem)
	}
	desired := instance.Status.DesiredRevision
	err = j.Nodes.SetFields(ctx, node, journey.NodeFields{Instance: instance, Revision: desired})
	if _, refused := contract.AsProblem(err); refused {
		return journey.Fail(err)
	}
	if err != nil {
		return journey.Retry(err)
	}
	instance.Status.Revision = node.Annotations[contract.RevisionAnnotation]
	ready, message := journey.NodeReady(node)
	if !ready && j.isStranded(instance) {
		return stranded(instance)
	}
	if instance.Status.Revision != desired || desired == "" {
		if problem := j.Daemons.Unanswered(instance, node); problem != nil {
			return journey.Fail(problem)
		}
		return j.confirmInTime(ctx, instance, node, journey.Wait(eventRetry, contract.ReasonRevisionPending,
			"node %s has revision %q and should have %q%s", node.Name, instance.Status.Revision, desired,
			journey.ApplyStatus(node)))
	}
	if !ready {
		return j.confirmInTime(ctx, instance, node, journey.Wait(eventRetry, contract.ReasonNodeNotReady, "node %s: %s",
			node.Name, message))
	}
	// If a host joins again, its old Node exists while kubelet still requests its certificate. So revoke the token only
	// now.
	if err = j.RevokeCredentials(ctx, instance); err != nil {
		return journey.Retry(err)
	}
	if err = j.Nodes.Uncordon(ctx, node); err != nil {
		return journey.Retry(err)
	}
	return journey.Done()
}

// confirmInTime turns a wait into a failure when the time for verification is over. Exception: if the host has no other
// revision to roll back to, the host may wait for something in the cluster, such as a pod network. Then confirmInTime
// waits, without any slot, as long as kubelet reports.
func (j *Join) confirmInTime(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	outcome journey.Outcome) journey.Outcome {
	bounds, err := j.CurrentBounds(ctx)
	if err != nil {
		return journey.Retry(err)
	}
	confirms := j.PhaseSince(instance, v1alpha1.PhaseConfirming)
	late := !confirms.IsZero() && j.Left(confirms, bounds.Verify) <= 0
	if held := instance.Status.HeldRevision; held == "" || held == instance.Status.DesiredRevision {
		_, message := journey.NodeReady(node)
		if late && !journey.KubeletReports(node) && j.Observed.NotReady(node).IsOut(journey.RescueAfter, j.Now()) {
			return journey.Fail(contract.NewProblem(contract.ReasonNodeNotReady,
				"node %s has not been Ready for %s: %s", node.Name, journey.RescueAfter, message))
		}
		outcome.Endless = outcome.Problem.Reason == contract.ReasonNodeNotReady || late
		return outcome
	}
	if late {
		return journey.Fail(contract.NewProblem(contract.ReasonUpdateFailed, "%s, after %s", outcome.Problem.Detail,
			bounds.Verify))
	}
	return outcome
}

// isStranded reports whether kubelet waits for a certificate that it can't get with its bootstrap token. Either the
// response to its request was lost, or kubelet ended before it had the certificate and now uses another key. A kubelet
// that has a certificate soon registers its Node or becomes Ready.
func (j *Join) isStranded(instance *v1alpha1.WindowsInstance) bool {
	ids := instance.Status.BootstrapCredentials
	return j.IsTokenUsed != nil && len(ids) > 0 && j.IsTokenUsed(ids[len(ids)-1]) && j.inPhase(instance) >= eventRetry
}

// The function `stranded` returns the failure for isStranded. The next attempt gets a new token.
func stranded(instance *v1alpha1.WindowsInstance) journey.Outcome {
	return journey.Fail(contract.NewProblem(contract.ReasonCertificateDenied, "kubelet on %s lost the key of the "+
		"certificate that it got with its bootstrap token; the next attempt brings another token",
		instance.Spec.Address))
}

// waitInSlot keeps the join slot and waits for an event. After waitLimit, the attempt fails and releases the slot.
func (j *Join) waitInSlot(instance *v1alpha1.WindowsInstance, reason contract.Reason, format string,
	args ...any) journey.Outcome {
	if waited := j.inPhase(instance); waited > waitLimit {
		return journey.Fail(contract.NewProblem(reason, "%s, after %s", fmt.Sprintf(format, args...),
			waited.Round(time.Second)))
	}
	return journey.Wait(eventRetry, reason, format, args...)
}

// retryInSlot returns the wait before the next try of a failed call. The host keeps its join slot. If the API server
// refuses this host, the attempt fails. If calls have failed for twice waitLimit, the attempt fails as well.
func (j *Join) retryInSlot(instance *v1alpha1.WindowsInstance, session *journey.Session, err error) journey.Outcome {
	if _, refused := contract.AsProblem(err); refused {
		return journey.Fail(err)
	}
	now := j.Now()
	if now.Sub(session.FailingSince) > j.inPhase(instance) {
		session.FailingSince = now
	}
	if failing := now.Sub(session.FailingSince); failing > 2*waitLimit {
		return journey.Fail(contract.NewProblem(contract.ReasonAPICallFailed, "%v, after %s", err,
			failing.Round(time.Second)))
	}
	return journey.Retry(err)
}

func (j *Join) inPhase(instance *v1alpha1.WindowsInstance) time.Duration {
	since := j.PhaseSince(instance, instance.Status.Phase)
	if since.IsZero() {
		return 0
	}
	return j.Now().Sub(since.Began)
}
