package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// adopt waits for the host's Node and makes it ours: marks, and a cordon until the node is whole.
func (w *Walker) adopt(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	node, err := w.node(ctx, instance.Status.NodeName)
	if err != nil {
		return retry(err)
	}
	if node == nil {
		return w.waitInSlot(instance, contract.ReasonNodePending, "kubelet on %s has not registered node %s yet",
			instance.Spec.Address, instance.Status.NodeName)
	}
	if problem := Foreign(node, instance); problem != nil {
		return Fail(problem)
	}
	desired, _, err := w.revision(ctx, instance)
	if err != nil {
		return waitForCluster(err)
	}
	marks := Marks{Instance: instance, KeyHash: visit.key.Hash, Version: desired.Version}
	if !NodeReadyAt(node, desired.Version) {
		marks.Cordon = true
	}
	if err = w.tell(ctx, node, marks); err != nil {
		return retry(err)
	}
	instance.Status.NodeUID, instance.Status.DesiredRevision = string(node.UID), desired.Version
	return Done()
}

// handOver gives the daemon its certificate and starts it as a service. Afterwards SSH is not
// needed any more.
func (w *Walker) handOver(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	if visit.csr == "" {
		return restart()
	}
	certificate, err := w.certificate(ctx, visit.csr)
	if _, denied := contract.AsProblem(err); denied {
		return Fail(err)
	}
	if err != nil {
		return retry(err)
	}
	if len(certificate) == 0 {
		return w.waitInSlot(instance, contract.ReasonCertificatePending, "certificate request %s is not signed yet",
			visit.csr)
	}
	desired, facts, err := w.revision(ctx, instance)
	if err != nil {
		return waitForCluster(err)
	}
	answer, err := call[contract.HandoverAnswer](ctx, visit.conn, contract.VerbHandover, contract.HandoverRequest{
		NodeName: instance.Status.NodeName, Version: desired.Version, Certificate: certificate,
		APIServer: facts.APIServer, CA: []byte(facts.BootstrapCA), Namespace: w.Namespace,
	})
	if err != nil {
		return Fail(err)
	}
	if !answer.ServiceRunning {
		return Fail(contract.NewProblem(contract.ReasonServiceFailed, "%s does not run", contract.ServiceDaemon))
	}
	w.Slots.Release(instance.UID)
	visit.End()
	return Done()
}

// revoke ends kubelet's first credentials: it has its own, or the host leaves.
func (w *Walker) revoke(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	if err := w.Tokens.Revoke(ctx, instance); err != nil {
		return fmt.Errorf("ending kubelet's first credential: %w", err)
	}
	instance.Status.BootstrapCredentials = nil
	return nil
}

// confirm waits until the daemon reports the desired version and the Node is Ready, then lifts our
// cordon. A host that has another revision to go back to has as long as the proof of an update. One
// that has none is waited for without an end, as it holds no slot and no place. What it was told to
// have is in the status: a cached Node may not show it yet.
func (w *Walker) confirm(ctx context.Context, instance *v1alpha1.WindowsInstance, _ *Visit) Outcome {
	node, err := w.node(ctx, instance.Status.NodeName)
	if err != nil {
		return retry(err)
	}
	if node == nil {
		return Fail(contract.NewProblem(contract.ReasonNodePending, "node %s vanished", instance.Status.NodeName))
	}
	if problem := Foreign(node, instance); problem != nil {
		return Fail(problem)
	}
	desired := instance.Status.DesiredRevision
	if err = w.mark(ctx, node, Marks{Instance: instance, Version: desired}); err != nil {
		return retry(err)
	}
	instance.Status.Revision, instance.Status.KubeletVersion = node.Annotations[contract.RevisionAnnotation],
		node.Status.NodeInfo.KubeletVersion
	if instance.Status.Revision != desired || desired == "" {
		if problem := w.unheard(instance, node); problem != nil {
			return Fail(problem)
		}
		return w.confirmInTime(ctx, instance, Wait(eventRetry, contract.ReasonRevisionPending,
			"node %s has version %q and should have %q%s", node.Name, instance.Status.Revision, desired, said(node)))
	}
	if ready, message := NodeReady(node); !ready {
		return w.confirmInTime(ctx, instance, Wait(eventRetry, contract.ReasonNodeNotReady, "node %s: %s", node.Name,
			message))
	}
	// Not earlier: a host that joins again has its old Node while kubelet still asks for its certificate.
	if err = w.revoke(ctx, instance); err != nil {
		return retry(err)
	}
	if err = w.uncordon(ctx, node); err != nil {
		return retry(err)
	}
	instance.Status.SilentSince = nil
	return Done()
}

// confirmInTime turns a wait into a failure when the time for the proof is over.
func (w *Walker) confirmInTime(ctx context.Context, instance *v1alpha1.WindowsInstance, outcome Outcome) Outcome {
	if held := instance.Status.HeldRevision; held == "" || held == instance.Status.DesiredRevision {
		outcome.Endless = outcome.Problem.Reason == contract.ReasonNodeNotReady
		return outcome
	}
	bounds, err := w.bounds(ctx)
	if err != nil {
		return retry(err)
	}
	if began, ok := phaseBegan(instance, v1alpha1.PhaseConfirming); ok && w.Now().Sub(began) > bounds.Proof {
		return Fail(contract.NewProblem(contract.ReasonUpdateFailed, "%s, after %s", outcome.Problem.Detail,
			bounds.Proof))
	}
	return outcome
}

// phaseBegan is when a phase began that has not ended.
func phaseBegan(instance *v1alpha1.WindowsInstance, phase v1alpha1.Phase) (time.Time, bool) {
	for _, p := range instance.Status.Phases {
		if p.Phase == phase && p.Milliseconds == nil {
			return p.StartTime.Time, true
		}
	}
	return time.Time{}, false
}

// said is the daemon's own word on why the desired version does not hold yet.
func said(node *corev1.Node) string {
	if status := node.Annotations[contract.ApplyStatusAnnotation]; status != "" {
		return fmt.Sprintf(": %.300s", status)
	}
	return ""
}

// waitInSlot waits for an event, but not for ever: a host that gets nowhere makes room for others.
func (w *Walker) waitInSlot(instance *v1alpha1.WindowsInstance, reason contract.Reason, format string,
	args ...any) Outcome {
	if began, ok := phaseBegan(instance, instance.Status.Phase); ok {
		if waited := w.Now().Sub(began); waited > waitLimit {
			return Fail(contract.NewProblem(reason, "%s, after %s", fmt.Sprintf(format, args...),
				waited.Round(time.Second)))
		}
	}
	return Wait(eventRetry, reason, format, args...)
}

// mark writes marks where they differ; node is then what the API server has.
func (w *Walker) mark(ctx context.Context, node *corev1.Node, marks Marks) error {
	if err := w.change(ctx, node, marks.Apply); err != nil {
		return fmt.Errorf("marking node %s: %w", node.Name, err)
	}
	return nil
}
