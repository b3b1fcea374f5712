// Package reboot answers how a node is rebooted, and how the reboot is proven. The instance controller
// runs it. It never contacts a host: the daemon reboots it.
package reboot

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// Reboot takes a node through a reboot.
type Reboot struct{ *journey.Parts }

// rebootProof is the least time that a reboot has: servers with much memory take 10 minutes.
const rebootProof = 20 * time.Minute

// WhyReboot says who wants a node rebooted; empty when nobody does. A daemon that does not say in
// which boot it runs can't prove a reboot. pending says whether Windows' own wish counts.
func WhyReboot(node *corev1.Node, pending bool) v1alpha1.RebootReason {
	asked := func(annotation string) bool { _, ok := node.Annotations[annotation]; return ok }
	switch {
	case node.Annotations[contract.BootIDAnnotation] == "":
		return ""
	case asked(contract.RebootRequiredAnnotation):
		return v1alpha1.RebootRequired
	case asked(contract.RebootRequestedAnnotation):
		return v1alpha1.RebootRequested
	case pending && asked(contract.RebootPendingAnnotation):
		return v1alpha1.RebootPending
	}
	return ""
}

// Steps lists the steps through a reboot, in their order. The host is never contacted: the daemon
// reboots it when it is told to.
func (r *Reboot) Steps() []journey.Step {
	return []journey.Step{
		{Name: v1alpha1.StepWaiting, Run: journey.ClaimPlace},
		{Name: v1alpha1.StepDraining, Run: r.Evacuate},
		{Name: v1alpha1.StepSwitching, Run: r.restartHost},
		{Name: v1alpha1.StepProving, Run: r.comeBack},
	}
}

// restartHost tells the daemon of one boot to reboot, and waits for another boot. It fails, again
// and again, when the host does not come back in time.
func (r *Reboot) restartHost(ctx context.Context, instance *v1alpha1.WindowsInstance,
	view *journey.View) journey.Outcome {
	reboot, node := instance.Status.Reboot, view.Node
	if boot := node.Annotations[contract.BootIDAnnotation]; reboot.BootID != "" && boot != "" && boot != reboot.BootID {
		return journey.Done()
	}
	if node.Annotations[contract.RebootApprovedAnnotation] != reboot.BootID {
		if err := r.Nodes.Annotate(
			ctx, node, map[string]string{contract.RebootApprovedAnnotation: reboot.BootID}); err != nil {
			return journey.Retry(err)
		}
	}
	return r.back(reboot, view, journey.Wait(0, contract.ReasonRebooting, "node %s reboots", node.Name))
}

// comeBack waits until the node is Ready for the settling time, and then takes away what asked for
// the reboot. What Windows or a tool asks for after the boot is asked for anew.
func (r *Reboot) comeBack(ctx context.Context, instance *v1alpha1.WindowsInstance, view *journey.View) journey.Outcome {
	reboot, node := instance.Status.Reboot, view.Node
	if ready, message := journey.NodeReady(node); !ready {
		reboot.ReadySince = nil
		return r.back(reboot, view, journey.Wait(0, contract.ReasonRebooting,
			"node %s has rebooted and is not Ready: %s",
			node.Name, message))
	}
	var left time.Duration
	if reboot.ReadySince, left = r.Settles(node, reboot.ReadySince, view.Bounds.Settle); left > 0 {
		return journey.Wait(left, contract.ReasonSettling, "node %s has rebooted and has to stay Ready for %s",
			node.Name,
			view.Bounds.Settle)
	}
	// One reboot serves whoever asked before it. The cache must show it: who asks by what it still
	// shows would have the host rebooted again.
	gone := map[string]string{contract.RebootApprovedAnnotation: "", contract.RebootRequiredAnnotation: "",
		contract.RebootRequestedAnnotation: ""}
	shown := false
	for annotation := range gone {
		_, there := node.Annotations[annotation]
		shown = shown || there
	}
	if !shown {
		return journey.Done()
	}
	if err := r.Nodes.Annotate(ctx, node, gone); err != nil {
		return journey.Retry(err)
	}
	return journey.Wait(journey.ConflictRetry, contract.ReasonSettling, "node %s has rebooted", node.Name)
}

// back turns a wait for a host into a failure when it takes too long.
func (r *Reboot) back(reboot *v1alpha1.Reboot, view *journey.View, outcome journey.Outcome) journey.Outcome {
	left := max(view.Bounds.Proof, rebootProof) - r.Now().Sub(reboot.Since.Time)
	if left <= 0 {
		return journey.Fail(contract.NewProblem(contract.ReasonRebootNotProven, "%s, since %s", outcome.Problem.Detail,
			reboot.Since.UTC().Format(time.RFC3339)))
	}
	outcome.After = left
	return outcome
}
