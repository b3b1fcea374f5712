// Package upgrade answers how a node gets to another revision, or back to the one that it held, through
// annotations of its Node. The instance controller runs it. It never contacts a host.
package upgrade

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Upgrade takes a node to another revision.
type Upgrade struct{ *journey.Parts }

// Steps lists the steps to another version, in their order. Pods leave before the switch only if
// they would feel it. The host is never contacted: the daemon does what the Node's annotations say.
//
//	stage → claim → (drain) → switch → prove → (uncordon)
//	                            └────────┴──→ go back → (uncordon)
func (u *Upgrade) Steps(drains bool) []journey.Step {
	steps := []journey.Step{
		{Name: v1alpha1.StepStaging, Run: u.stage},
		{Name: v1alpha1.StepWaiting, Run: u.claim},
		{Name: v1alpha1.StepDraining, Run: u.Evacuate},
		{Name: v1alpha1.StepSwitching, Run: u.switchOver},
		{Name: v1alpha1.StepProving, Run: u.prove},
	}
	return slices.DeleteFunc(steps, func(step journey.Step) bool {
		return !drains &&
			step.Name == v1alpha1.StepDraining
	})
}

// stageRetry is a safety net: what the daemon says about staging is an event.
const stageRetry = time.Minute

// stage has the daemon fetch what the version needs while the node serves.
func (u *Upgrade) stage(ctx context.Context, instance *v1alpha1.WindowsInstance, view *journey.View) journey.Outcome {
	update, node := instance.Status.Update, view.Node
	if u.overSSH(instance, node) || node.Annotations[contract.StagedAnnotation] == update.Revision {
		return journey.Done()
	}
	if !journey.StagesItself(node) || policy.CheckSkew(journey.Release(update.Revision),
		journey.Release(node.Annotations[contract.RevisionAnnotation])) != "" {
		update.OverSSH = true
		return journey.Done()
	}
	if node.Annotations[contract.StageAnnotation] != update.Revision {
		if err := u.Nodes.Annotate(ctx, node,
			map[string]string{contract.StageAnnotation: update.Revision}); err != nil {
			return journey.Retry(err)
		}
	}
	// it is empty meanwhile
	if waited := u.Now().Sub(update.Since.Time); instance.Status.Disruption != nil && waited > view.Bounds.Proof {
		return journey.Fail(contract.NewProblem(contract.ReasonUpdateFailed,
			"node %s does not get the payload of version %s: %.300s", node.Name, update.Revision,
			node.Annotations[contract.StageStatusAnnotation]))
	}
	why := node.Annotations[contract.StageStatusAnnotation]
	if why != "" && !inVain(why) {
		return journey.Wait(stageRetry, contract.ReasonStaging, "node %s fetches version %s: %.300s", node.Name,
			update.Revision,
			why)
	}
	left := u.DaemonTimeout - u.Now().Sub(update.Since.Time)
	if left <= 0 {
		update.OverSSH = true
		return journey.Done()
	}
	if why != "" {
		return journey.Wait(min(left, stageRetry), contract.ReasonStaging, "node %s fetches version %s: %.300s",
			node.Name,
			update.Revision, why)
	}
	return journey.Wait(min(left, stageRetry), contract.ReasonStaging, "node %s fetches version %s", node.Name,
		update.Revision)
}

// inVain says whether a daemon's word is that it gets nothing where it was told to fetch: as where
// a firewall lies in between. What lies with its host, such as a full disk, is no better over SSH,
// and a fetch that takes long goes on.
func inVain(why string) bool {
	reason, _, _ := strings.Cut(why, ":")
	return reason == string(contract.ReasonPayloadIncomplete)
}

// overSSH says that the host is walked into, also because its daemon would not make the switch: it
// is silent already.
func (u *Upgrade) overSSH(instance *v1alpha1.WindowsInstance, node *corev1.Node) bool {
	update := instance.Status.Update
	if problem, _ := u.Daemons.Unresponsive(&instance.Status, node); problem != nil && update.SwitchTime == nil {
		update.OverSSH = true
	}
	return update.OverSSH
}

// claim has a place in the rollout budget taken, for an update.
func (u *Upgrade) claim(ctx context.Context, instance *v1alpha1.WindowsInstance, view *journey.View) journey.Outcome {
	if u.overSSH(instance, view.Node) && instance.Status.Disruption == nil {
		if outcome := u.Access.HasKey(ctx); !outcome.IsDone() {
			return outcome
		}
	}
	return journey.ClaimPlace(ctx, instance, view)
}

// switchOver tells the daemon which version to bring about, and waits until it holds. A daemon that
// went back by itself says so.
func (u *Upgrade) switchOver(ctx context.Context, instance *v1alpha1.WindowsInstance,
	view *journey.View) journey.Outcome {
	update, node := instance.Status.Update, view.Node
	if err := u.Nodes.Mark(ctx, node, journey.Marks{Instance: instance, Version: update.Revision,
		Upgrading: true}); err != nil {
		return journey.Retry(err)
	}
	if node.Annotations[contract.RevisionAnnotation] == update.Revision {
		return journey.Done()
	}
	if why := refused(node, update.Revision); why != nil && !passes(why) {
		return journey.Fail(contract.NewProblem(contract.ReasonUpdateFailed, "node %s went back by itself: %s",
			node.Name, why))
	}
	return u.inTime(update, view, journey.Follows(node, update.Revision))
}

// prove waits until the node is well at its new version for the settling time.
func (u *Upgrade) prove(_ context.Context, instance *v1alpha1.WindowsInstance, view *journey.View) journey.Outcome {
	update, node := instance.Status.Update, view.Node
	ready, message := journey.NodeReady(node)
	outcome := journey.Done()
	switch info := node.Status.NodeInfo.KubeletVersion; {
	case node.Annotations[contract.RevisionAnnotation] != update.Revision:
		outcome = journey.Follows(node, update.Revision)
	case journey.ApplyStatus(node) != "":
		outcome = journey.Wait(0, contract.ReasonRevisionPending, "node %s has version %q, and it does not hold%s",
			node.Name,
			update.Revision, journey.ApplyStatus(node))
	case !ready:
		outcome = journey.Wait(0, contract.ReasonNodeNotReady, "node %s: %s", node.Name, message)
	case !sameVersion(info, view.Kubelet):
		outcome = journey.Wait(0, contract.ReasonRevisionPending, "kubelet of node %s is %.50q and should be %q",
			node.Name,
			info, view.Kubelet)
	}
	if !outcome.IsDone() {
		update.ReadySince = nil
		return u.inTime(update, view, outcome)
	}
	var left time.Duration
	if update.ReadySince, left = u.Settles(node, update.ReadySince, view.Bounds.Settle); left > 0 {
		return journey.Wait(left, contract.ReasonSettling, "node %s is at version %s and has to stay Ready for %s",
			node.Name,
			update.Revision, view.Bounds.Settle)
	}
	return journey.Done()
}

// GoBack has the daemon put the previous version back, and waits until the node is well there. The
// daemon's word of before is taken away: it may still be for the previous version, while the host
// is between the two. How long that takes has no end, as there is nothing else to go to; but it is
// told.
func (u *Upgrade) GoBack(ctx context.Context, instance *v1alpha1.WindowsInstance, view *journey.View) journey.Outcome {
	update, node := instance.Status.Update, view.Node
	if node.Annotations[contract.DesiredRevisionAnnotation] != update.From {
		if err := u.Nodes.Annotate(ctx, node, map[string]string{contract.DesiredRevisionAnnotation: update.From,
			contract.RevisionAnnotation: ""}); err != nil {
			return journey.Retry(err)
		}
	}
	_, left := u.Daemons.Unresponsive(&instance.Status, node)
	reason, since := contract.ReasonUpdateFailed, ""
	// its place stays taken: it serves nobody, with or without one
	if proof := view.Bounds.Proof - u.Now().Sub(update.Since.Time); proof <= 0 {
		reason, since = contract.ReasonNotBack, " since "+update.Since.UTC().Format(time.RFC3339)
	} else if left == 0 || proof < left {
		left = proof
	}
	ready, message := journey.NodeReady(node)
	switch {
	case node.Annotations[contract.RevisionAnnotation] != update.From || refused(node, update.Revision) != nil:
		return journey.Wait(left, reason, "node %s goes back to version %s%s%s, because: %s", node.Name, update.From,
			since,
			journey.ApplyStatus(node), update.Message)
	case !ready:
		return journey.Wait(left, reason, "node %s is back at version %s and not Ready%s (%s), because: %s", node.Name,
			update.From, since, message, update.Message)
	}
	return journey.Done()
}

// inTime turns a wait into a failure when the time for the proof is over.
func (u *Upgrade) inTime(update *v1alpha1.Update, view *journey.View, outcome journey.Outcome) journey.Outcome {
	began := update.Since.Time
	if update.SwitchTime != nil {
		began = update.SwitchTime.Time
	}
	left := view.Bounds.Proof - u.Now().Sub(began)
	if left <= 0 {
		return journey.Fail(contract.NewProblem(contract.ReasonUpdateFailed, "%s, after %s", outcome.Problem.Detail,
			view.Bounds.Proof))
	}
	outcome.After = left
	return outcome
}

// Move lets a host's daemon pull another version.
func (u *Upgrade) Move(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	version string) error {
	if err := u.Nodes.Request(ctx, node, journey.Marks{Instance: instance, Version: version}); err != nil {
		return err
	}
	instance.Status.DesiredRevision = version
	u.Daemons.Observe(&instance.Status, node)
	return nil
}
