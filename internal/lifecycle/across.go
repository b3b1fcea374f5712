package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Bounds are the user's, for a node that goes to another version or through a reboot.
type Bounds struct {
	// Drain is how long pods are given; Settle how long a node must be Ready; Proof how long it may
	// take from the switch on; Unavailable how long it must be not Ready to count as out of
	// service.
	Drain, Settle, Proof, Unavailable time.Duration
}

// DefaultBounds hold where the user sets none; they are the CRD's defaults, too.
func DefaultBounds() Bounds {
	return Bounds{Drain: v1alpha1.DefaultDrainTimeout, Settle: v1alpha1.DefaultSettleTime,
		Proof: v1alpha1.DefaultProofTimeout, Unavailable: v1alpha1.DefaultUnavailableAfter}
}

// bounds are the user's, or the defaults.
func (w *Walker) bounds(ctx context.Context) (Bounds, error) {
	if w.Bounds == nil {
		return DefaultBounds(), nil
	}
	return w.Bounds(ctx)
}

// IsOut says that nobody is disturbed at a node any more: it has not been Ready for long.
func (w *Walker) IsOut(node *corev1.Node, bounds Bounds) bool {
	ready, _ := NodeReady(node)
	return !ready && policy.IsOut(policy.NotReadySince(node), w.Now(), bounds.Unavailable)
}

// Crossing is one look at a node on its way to another version, or through a reboot.
type Crossing struct {
	Node   *corev1.Node
	Bounds Bounds
	// Kubelet is the version that the node's kubelet must report at its new version; empty when
	// nobody knows.
	Kubelet string
	// Claim takes a place in the rollout budget, or waits for one. A repeated call finds the place
	// taken.
	Claim func(ctx context.Context) Outcome
}

// Leg is one step of a way across. It looks first; what it fails at has the node go back.
type Leg struct {
	Name v1alpha1.Step
	Run  func(ctx context.Context, instance *v1alpha1.WindowsInstance, crossing *Crossing) Outcome
}

// Across lists the steps to another version, in their order. Pods leave before the switch only if
// they would feel it. The host is never contacted: the daemon does what the Node's annotations say.
//
//	stage → claim → (drain) → switch → prove → (uncordon)
//	                            └────────┴──→ go back → (uncordon)
func (w *Walker) Across(drains bool) []Leg {
	legs := []Leg{
		{Name: v1alpha1.StepStaging, Run: w.stage},
		{Name: v1alpha1.StepWaiting, Run: w.claim},
		{Name: v1alpha1.StepDraining, Run: w.empty},
		{Name: v1alpha1.StepSwitching, Run: w.switchOver},
		{Name: v1alpha1.StepProving, Run: w.prove},
	}
	return slices.DeleteFunc(legs, func(leg Leg) bool { return !drains && leg.Name == v1alpha1.StepDraining })
}

// stageRetry is a safety net: what the daemon says about staging is an event.
const stageRetry = time.Minute

// stage has the daemon fetch what the version needs while the node serves.
func (w *Walker) stage(ctx context.Context, instance *v1alpha1.WindowsInstance, crossing *Crossing) Outcome {
	update, node := instance.Status.Update, crossing.Node
	if w.overSSH(instance, node) || node.Annotations[contract.StagedAnnotation] == update.Revision {
		return Done()
	}
	if !StagesItself(node) || policy.CheckSkew(release(update.Revision),
		release(node.Annotations[contract.RevisionAnnotation])) != "" {
		update.OverSSH = true
		return Done()
	}
	if node.Annotations[contract.StageAnnotation] != update.Revision {
		if err := w.annotate(ctx, node, map[string]string{contract.StageAnnotation: update.Revision}); err != nil {
			return retry(err)
		}
	}
	// it is empty meanwhile
	if waited := w.Now().Sub(update.Since.Time); instance.Status.Disruption != nil && waited > crossing.Bounds.Proof {
		return Fail(contract.NewProblem(contract.ReasonUpdateFailed,
			"node %s does not get the payload of version %s: %.300s", node.Name, update.Revision,
			node.Annotations[contract.StageStatusAnnotation]))
	}
	why := node.Annotations[contract.StageStatusAnnotation]
	if why != "" && !inVain(why) {
		return Wait(stageRetry, contract.ReasonStaging, "node %s fetches version %s: %.300s", node.Name,
			update.Revision,
			why)
	}
	left := w.Silence - w.Now().Sub(update.Since.Time)
	if left <= 0 {
		update.OverSSH = true
		return Done()
	}
	if why != "" {
		return Wait(min(left, stageRetry), contract.ReasonStaging, "node %s fetches version %s: %.300s", node.Name,
			update.Revision, why)
	}
	return Wait(min(left, stageRetry), contract.ReasonStaging, "node %s fetches version %s", node.Name, update.Revision)
}

// inVain says whether a daemon's word is that it gets nothing where it was told to fetch: as where
// a firewall lies in between. What lies with its host, such as a full disk, is no better over SSH,
// and a fetch that takes long goes on.
func inVain(why string) bool {
	reason, _, _ := strings.Cut(why, ":")
	return reason == string(contract.ReasonPayloadIncomplete)
}

// StagesItself says whether a node's daemon is one that fetches payload by itself. Those that do
// say in which boot they run.
func StagesItself(node *corev1.Node) bool { return node.Annotations[contract.BootIDAnnotation] != "" }

// overSSH says that the host is walked into, also because its daemon would not make the switch: it
// is silent already.
func (w *Walker) overSSH(instance *v1alpha1.WindowsInstance, node *corev1.Node) bool {
	update := instance.Status.Update
	if problem, _ := w.silent(&instance.Status, node); problem != nil && update.SwitchTime == nil {
		update.OverSSH = true
	}
	return update.OverSSH
}

// claim has a place in the rollout budget taken, for an update.
func (w *Walker) claim(ctx context.Context, instance *v1alpha1.WindowsInstance, crossing *Crossing) Outcome {
	if w.overSSH(instance, crossing.Node) && instance.Status.Disruption == nil {
		if outcome := w.HasKey(ctx); !outcome.IsDone() {
			return outcome
		}
	}
	return claim(ctx, instance, crossing)
}

// claim has a place in the rollout budget taken.
func claim(ctx context.Context, _ *v1alpha1.WindowsInstance, crossing *Crossing) Outcome {
	return crossing.Claim(ctx)
}

// empty cordons the node and moves its pods away. A node that has not been Ready for long has its
// pods told to end, and is not waited for: nobody there would say when they did. It fails when pods
// can't be moved in time, and when somebody uncordons the node meanwhile; but a node that was told
// to leave its version already only goes on.
func (w *Walker) empty(ctx context.Context, instance *v1alpha1.WindowsInstance, crossing *Crossing) Outcome {
	status, node := &instance.Status, crossing.Node
	between := status.Update != nil && status.Update.From != "" &&
		node.Annotations[contract.DesiredRevisionAnnotation] != status.Update.From
	switch {
	case lifted(node) && between:
		return Done()
	case lifted(node):
		return Fail(contract.NewProblem(contract.ReasonUncordoned,
			"somebody uncordoned node %s while it was being drained", node.Name))
	}
	if err := w.hold(ctx, node); err != nil {
		return retry(err)
	}
	return emptied(instance, w.IsOut(node, crossing.Bounds), between,
		w.drain(ctx, instance, node.Name, crossing.Bounds.Drain))
}

// emptied judges what a drain came to.
func emptied(instance *v1alpha1.WindowsInstance, out, between bool, outcome Outcome) Outcome {
	if outcome.IsDone() {
		return outcome
	}
	blocked := outcome.Problem.Reason == contract.ReasonDrainBlocked
	switch {
	case out && (blocked || outcome.Problem.Reason == contract.ReasonDraining), between && blocked:
		instance.Status.DrainTime = nil
		return Done()
	case blocked:
		return Fail(outcome.Problem)
	}
	return outcome
}

// switchOver tells the daemon which version to bring about, and waits until it holds. A daemon that
// went back by itself says so.
func (w *Walker) switchOver(ctx context.Context, instance *v1alpha1.WindowsInstance, crossing *Crossing) Outcome {
	update, node := instance.Status.Update, crossing.Node
	if err := w.mark(ctx, node, Marks{Instance: instance, Version: update.Revision, Upgrading: true}); err != nil {
		return retry(err)
	}
	if node.Annotations[contract.RevisionAnnotation] == update.Revision {
		return Done()
	}
	if why := refused(node, update.Revision); why != nil && !passes(why) {
		return Fail(contract.NewProblem(contract.ReasonUpdateFailed, "node %s went back by itself: %s", node.Name, why))
	}
	return w.inTime(update, crossing, Follows(node, update.Revision))
}

// prove waits until the node is well at its new version for the settling time.
func (w *Walker) prove(_ context.Context, instance *v1alpha1.WindowsInstance, crossing *Crossing) Outcome {
	update, node := instance.Status.Update, crossing.Node
	ready, message := NodeReady(node)
	outcome := Done()
	switch info := node.Status.NodeInfo.KubeletVersion; {
	case node.Annotations[contract.RevisionAnnotation] != update.Revision:
		outcome = Follows(node, update.Revision)
	case said(node) != "":
		outcome = Wait(0, contract.ReasonRevisionPending, "node %s has version %q, and it does not hold%s", node.Name,
			update.Revision, said(node))
	case !ready:
		outcome = Wait(0, contract.ReasonNodeNotReady, "node %s: %s", node.Name, message)
	case !sameVersion(info, crossing.Kubelet):
		outcome = Wait(0, contract.ReasonRevisionPending, "kubelet of node %s is %.50q and should be %q", node.Name,
			info, crossing.Kubelet)
	}
	if !outcome.IsDone() {
		update.ReadySince = nil
		return w.inTime(update, crossing, outcome)
	}
	var left time.Duration
	if update.ReadySince, left = w.settles(node, update.ReadySince, crossing.Bounds.Settle); left > 0 {
		return Wait(left, contract.ReasonSettling, "node %s is at version %s and has to stay Ready for %s", node.Name,
			update.Revision, crossing.Bounds.Settle)
	}
	return Done()
}

// GoBack has the daemon put the previous version back, and waits until the node is well there. The
// daemon's word of before is taken away: it may still be for the previous version, while the host
// is between the two. How long that takes has no end, as there is nothing else to go to; but it is
// told.
func (w *Walker) GoBack(ctx context.Context, instance *v1alpha1.WindowsInstance, crossing *Crossing) Outcome {
	update, node := instance.Status.Update, crossing.Node
	if node.Annotations[contract.DesiredRevisionAnnotation] != update.From {
		if err := w.annotate(ctx, node, map[string]string{contract.DesiredRevisionAnnotation: update.From,
			contract.RevisionAnnotation: ""}); err != nil {
			return retry(err)
		}
	}
	_, left := w.silent(&instance.Status, node)
	reason, since := contract.ReasonUpdateFailed, ""
	// its place stays taken: it serves nobody, with or without one
	if proof := crossing.Bounds.Proof - w.Now().Sub(update.Since.Time); proof <= 0 {
		reason, since = contract.ReasonNotBack, " since "+update.Since.UTC().Format(time.RFC3339)
	} else if left == 0 || proof < left {
		left = proof
	}
	ready, message := NodeReady(node)
	switch {
	case node.Annotations[contract.RevisionAnnotation] != update.From || refused(node, update.Revision) != nil:
		return Wait(left, reason, "node %s goes back to version %s%s%s, because: %s", node.Name, update.From, since,
			said(node), update.Message)
	case !ready:
		return Wait(left, reason, "node %s is back at version %s and not Ready%s (%s), because: %s", node.Name,
			update.From, since, message, update.Message)
	}
	return Done()
}

// Return puts a node back into service: what we put on it for the way goes, and of cordons only our
// own.
func (w *Walker) Return(ctx context.Context, node *corev1.Node) Outcome {
	if err := w.uncordon(ctx, node); err != nil {
		return retry(err)
	}
	return Done()
}

// inTime turns a wait into a failure when the time for the proof is over.
func (w *Walker) inTime(update *v1alpha1.Update, crossing *Crossing, outcome Outcome) Outcome {
	began := update.Since.Time
	if update.SwitchTime != nil {
		began = update.SwitchTime.Time
	}
	left := crossing.Bounds.Proof - w.Now().Sub(began)
	if left <= 0 {
		return Fail(contract.NewProblem(contract.ReasonUpdateFailed, "%s, after %s", outcome.Problem.Detail,
			crossing.Bounds.Proof))
	}
	outcome.After = left
	return outcome
}

// settles says since when a node is Ready without a break, and how long it still has to be.
// Kubelet's word counts, too: nobody may have looked meanwhile.
func (w *Walker) settles(node *corev1.Node, since *metav1.Time, settle time.Duration) (*metav1.Time, time.Duration) {
	now := w.Now()
	began := now
	if since != nil && since.Time.Before(now) {
		began = since.Time
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.LastTransitionTime.After(began) && c.LastTransitionTime.Time.Before(now) {
			began = c.LastTransitionTime.Time
		}
	}
	left := settle - now.Sub(began)
	if since != nil && since.Time.Equal(began) {
		return since, left
	}
	// as the API server keeps it, and not too early
	kept := metav1.NewTime(began.Add(time.Second - 1).Truncate(time.Second))
	return &kept, max(left, kept.Sub(now)+settle)
}

// annotate writes annotations of a Node; an empty value removes one.
func (w *Walker) annotate(ctx context.Context, node *corev1.Node, values map[string]string) error {
	err := w.change(ctx, node, func(wanted *corev1.Node) {
		for key, value := range values {
			if value == "" {
				delete(wanted.Annotations, key)
				continue
			}
			if wanted.Annotations == nil {
				wanted.Annotations = map[string]string{}
			}
			wanted.Annotations[key] = value
		}
	})
	if err != nil {
		return fmt.Errorf("annotating node %s: %w", node.Name, err)
	}
	return nil
}
