// Package remove removes a host from the cluster: it drains the node, cleans the host and deletes the Node. It doesn't
// clean a host that is destroyed with its Machine. After the removal, the instance controller deletes the instance.
package remove

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// Remove removes hosts.
type Remove struct{ *journey.Parts }

// Next takes one step of the removal, according to the instance's policy.
func (r *Remove) Next(ctx context.Context, instance *v1alpha1.WindowsInstance, session *journey.Session,
	drainTimeout time.Duration) journey.Outcome {
	if instance.Spec.RemovalPolicy == v1alpha1.RemovalDiscard {
		session.End()
		return r.Discard(ctx, instance, drainTimeout)
	}
	return r.Leave(ctx, instance, session, drainTimeout)
}

// Leave removes a host that continues to exist. When Leave is done, nothing of the instance remains in the cluster.
// Unless the removal is forced, nothing remains on the host either. After drainTimeout, a drain is reported as blocked,
// but continues. A forced removal tries the drain and the cleanup once.
func (r *Remove) Leave(ctx context.Context, instance *v1alpha1.WindowsInstance, session *journey.Session,
	drainTimeout time.Duration) journey.Outcome {
	node, err := r.Nodes.OursLive(ctx, instance)
	if err != nil {
		return journey.Retry(err)
	}
	force := instance.Spec.RemovalPolicy == v1alpha1.RemovalForce
	if node != nil {
		if err = r.keepPodsAway(ctx, instance, node); err != nil && (!force || !journey.IsRefused(err)) {
			return r.NotCordoned(instance, drainTimeout, err)
		}
	}
	if outcome := r.drainAndClean(ctx, instance, session, node, drainTimeout); !outcome.IsDone() && !force {
		return outcome
	}
	if err = r.deleteNode(ctx, instance); err != nil {
		return journey.FailRefused(err)
	}
	if err = r.RevokeCredentials(ctx, instance); err != nil {
		return journey.FailRefused(err)
	}
	if session.Connected() {
		if err = session.Conn.RemoveUpload(ctx); err != nil && !force {
			return journey.Fail(fmt.Errorf("removing the uploaded daemon: %w", err))
		}
	}
	outcome := journey.Done()
	if session.RebootAdvised {
		outcome = outcome.With(journey.RebootAdvisedEvent(instance))
	}
	session.End()
	return outcome
}

// keepPodsAway marks and cordons a node. If the API server doesn't accept the marks, it only cordons the node.
func (r *Remove) keepPodsAway(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) error {
	err := r.Nodes.SetFields(ctx, node, journey.NodeFields{Instance: instance, Cordon: true})
	if _, refused := contract.AsProblem(err); refused || apierrors.IsConflict(err) {
		return r.Nodes.KeepPodsAway(ctx, node)
	}
	return err
}

// deleteNode deletes the instance's Node, even if kubelet registered it during the removal.
func (r *Remove) deleteNode(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	node, err := r.Nodes.OursLive(ctx, instance)
	if err != nil || node == nil {
		return err
	}
	return r.Nodes.Delete(ctx, node)
}

// drainAndClean drains the node and cleans the host. A host that was never reached needs no cleanup, and a host that
// joins by itself and was never claimed leaves by itself. Any other host that was never claimed has only the daemon's
// program. If no other instance has this host, Leave removes the program.
func (r *Remove) drainAndClean(ctx context.Context, instance *v1alpha1.WindowsInstance, session *journey.Session,
	node *corev1.Node,
	timeout time.Duration) journey.Outcome {
	isClaimed := instance.Status.NodeName != ""
	if instance.Status.HostKey == "" || instance.Spec.ByItself != nil && !isClaimed {
		return journey.Done()
	}
	if !isClaimed {
		switch others, err := r.isOthers(ctx, instance); {
		case err != nil:
			return journey.Retry(err)
		case others:
			return journey.Done()
		}
	}
	if !session.Connected() {
		outcome := r.Access.Dial(ctx, instance, session)
		replaced, err := r.isReplaced(ctx, instance, node, outcome)
		if err != nil {
			return journey.Retry(err)
		}
		if replaced {
			logf.FromContext(ctx).Info("another machine answers at the host's address, and the node is down: the host "+
				"was reinstalled or replaced, and nothing is cleaned", "address", instance.Spec.Address)
			return journey.Done()
		}
		if !outcome.IsDone() {
			return outcome
		}
	}
	if instance.Status.NodeName == "" {
		return journey.Done()
	}
	if node != nil && !session.Drained {
		outcome := r.Drain(ctx, instance, node.Name, timeout)
		if !outcome.IsDone() && instance.Spec.RemovalPolicy != v1alpha1.RemovalForce {
			return outcome
		}
		session.Drained = true
	}
	if session.Cleaned {
		return journey.Done()
	}
	outcome := r.clean(ctx, instance, session)
	session.Cleaned = outcome.IsDone()
	return outcome
}

// replacedAfter is how long a node must be not Ready before a machine with another host key counts as its replacement.
// If the node is Ready, its host has only moved to another address.
const replacedAfter = 5 * time.Minute

// isReplaced reports whether the host's machine no longer exists, and another machine has its address.
func (r *Remove) isReplaced(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	outcome journey.Outcome) (bool, error) {
	if !outcome.IsFailed() || outcome.Problem.Reason != contract.ReasonHostKeyMismatch {
		return false, nil
	}
	isDown := func(node *corev1.Node) bool {
		return node == nil || r.Observed.NotReady(node).IsOut(replacedAfter, r.Now())
	}
	if !isDown(node) {
		return false, nil
	}
	node, err := r.Nodes.OursLive(ctx, instance)
	return err == nil && isDown(node), err
}

// isOthers reports whether a host that this instance never claimed belongs to another instance, which has the same
// installation of Windows or the same address.
func (r *Remove) isOthers(ctx context.Context, instance *v1alpha1.WindowsInstance) (bool, error) {
	if host := instance.Status.Host; host != nil {
		_, taken := r.Claims.Other("", journey.Claimant{MachineID: host.MachineID})
		return taken, nil
	}
	nodes, err := r.Nodes.At(ctx, instance.Spec.Address)
	return slices.ContainsFunc(nodes, func(n corev1.Node) bool { return journey.Foreign(&n, instance) != nil }), err
}

// isOf returns the request for the cleanup. The request identifies the host by its Node's name and its installation of
// Windows. If the host never had a credential for its name, isOf omits the name, which may have changed.
func (r *Remove) isOf(instance *v1alpha1.WindowsInstance) contract.CleanupRequest {
	status := &instance.Status
	request := contract.CleanupRequest{NodeName: status.NodeName}
	if owner, ok := r.Claims.Owner(request.NodeName); ok && owner.UID == instance.UID {
		request.MachineID = owner.MachineID
		if !journey.HasName(status) {
			request.NodeName = ""
		}
	}
	return request
}

// clean tells the daemon to remove everything that the operator put on the host. Another machine's daemon refuses.
func (r *Remove) clean(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) journey.Outcome {
	if _, err := r.Access.Upload(ctx, session); err != nil {
		return journey.Fail(err)
	}
	answer, err := journey.Call[contract.CleanupAnswer](ctx, session.Conn, contract.VerbCleanup,
		r.isOf(instance))
	if err != nil {
		switch p := contract.ProblemOf(contract.ReasonInternal, err); {
		case p.Reason == contract.ReasonHostDuplicate:
			session.End() // the machine and the uploaded files belong to another instance
		// When the host removes its network, the connection breaks, but the cleanup continues. The next call gets the
		// answer, so only a second break is a failure.
		case (p.Reason == contract.ReasonConnectionLost || p.Reason == contract.ReasonDaemonCallFailed) &&
			instance.Status.Reason() != string(contract.ReasonConnectionLost):
			return journey.Wait(journey.CallRetry, contract.ReasonConnectionLost, "the host was about to remove its "+
				"network, which may break the connection: %s", p.Detail)
		}
		return journey.Fail(err)
	}
	if len(answer.Left) > 0 {
		return journey.Fail(&contract.Problem{Reason: contract.ReasonCleanupFailed,
			Detail: journey.Joined(answer.Left).Detail})
	}
	if len(answer.Kept) > 0 {
		logr.FromContextOrDiscard(ctx).Info("files stay on the host", "paths", answer.Kept)
	}
	session.RebootAdvised = answer.RebootAdvised
	return journey.Done()
}
