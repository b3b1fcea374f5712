package lifecycle

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Care is what a host that has joined needs.
type Care struct {
	Node *corev1.Node
	// Rejoin says why the host must walk the way in again; nil when it need not.
	Rejoin *contract.Problem
	// Update says what another desired version asks for; nil when there is none.
	Update *Update
	// Outcome is how the node is: done, or what it waits for.
	Outcome Outcome
}

// Update is the way to another version.
type Update struct {
	Version string
	// Walk says that the host must walk the way in again, because it lacks payload or its daemon is of another operator version. Otherwise the
	// daemon pulls the new manifest by itself, without SSH.
	Walk bool
	// Disruptive says that pods feel it, so it waits for the rollout budget.
	Disruptive bool
}

// Keep looks at a host that has joined, through its Node only, and puts our marks back where they are gone.
func (w *Walker) Keep(ctx context.Context, instance *v1alpha1.WindowsInstance) (Care, error) {
	status := &instance.Status
	node, err := w.node(ctx, status.NodeName)
	if err != nil {
		return Care{}, err
	}
	if node == nil {
		return Care{Rejoin: contract.NewProblem(contract.ReasonNodePending, "node %s vanished", status.NodeName)}, nil
	}
	if problem := Foreign(node, instance); problem != nil {
		return Care{Node: node, Outcome: Wait(0, problem.Reason, "%s", problem.Detail)}, nil //nolint:nilerr // the outcome tells it
	}
	if status.PublicKeyHash == "" {
		status.PublicKeyHash = node.Annotations[contract.PublicKeyHashAnnotation] // as an operator that kept it there only left it
	}
	if err = w.mark(ctx, node, Marks{Instance: instance, KeyHash: status.PublicKeyHash, Version: status.DesiredVersion}); err != nil {
		return Care{}, err
	}
	status.NodeUID = string(node.UID)
	status.Version, status.KubeletVersion = node.Annotations[contract.VersionAnnotation], node.Status.NodeInfo.KubeletVersion
	care := Care{Node: node}
	if desired, _, err := w.Desired.Current(ctx); err == nil && desired.Version != status.DesiredVersion {
		care.Update = w.compare(ctx, status.DesiredVersion, desired)
		care.Outcome = Wait(0, contract.ReasonVersionPending, "version %s is desired and waits for the rollout budget", desired.Version)
		return care, nil
	}
	ready, message := NodeReady(node)
	overdue, left := w.overdue(node)
	if overdue {
		care.Rejoin = contract.NewProblem(contract.ReasonNodeNotReady, "node %s has not been Ready for %s: %s", node.Name, rescueAfter, message)
		return care, nil
	}
	if status.Version != status.DesiredVersion {
		care.Outcome = Wait(left, contract.ReasonVersionPending, "node %s has version %q and should have %q%s", node.Name, status.Version, status.DesiredVersion, said(node))
		return care, nil
	}
	if !ready {
		care.Outcome = Wait(left, contract.ReasonNodeNotReady, "node %s: %s", node.Name, message)
		return care, nil
	}
	return care, w.uncordon(ctx, node)
}

// rescueAfter is how long a node that has joined may be not Ready before its host is looked at over SSH: kubelet's certificate or the daemon's may have
// expired while it was off, or services may be gone. A boot with updates of Windows takes less.
const rescueAfter = 10 * time.Minute

// overdue says whether a node has not been Ready for too long, and otherwise how much time is left to it; none for a node that is Ready.
func (w *Walker) overdue(node *corev1.Node) (overdue bool, left time.Duration) {
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue || c.LastTransitionTime.IsZero() {
			continue
		}
		left = rescueAfter - w.Now().Sub(c.LastTransitionTime.Time)
		return left <= 0, max(0, left)
	}
	return false, 0
}

// Serving gives the host's Node while it is Ready at the version that it was last told to have, whatever is under way for the host; nil
// otherwise.
func (w *Walker) Serving(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, error) {
	status := &instance.Status
	if status.JoinedTime == nil || status.Phase == v1alpha1.PhaseRemoving {
		return nil, nil
	}
	node, err := w.node(ctx, status.NodeName)
	if err != nil || node == nil || Foreign(node, instance) != nil {
		return nil, err
	}
	told := node.Annotations[contract.DesiredVersionAnnotation]
	if told == "" || told != status.DesiredVersion || !NodeReadyAt(node, told) {
		return nil, nil
	}
	return node, nil
}

// compare says what it takes to come from a published version to the desired one. A version whose manifest can't be read any more is
// walked away from.
func (w *Walker) compare(ctx context.Context, from string, to blueprint.Desired) *Update {
	update := &Update{Version: to.Version, Walk: true, Disruptive: true}
	if release(from) != release(to.Version) {
		return update
	}
	published := &corev1.ConfigMap{}
	if err := w.Client.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: contract.ServicesConfigMapPrefix + from}, published); err != nil {
		return update
	}
	old, err := contract.ManifestFromConfigMap(published.Data)
	if err != nil {
		return update
	}
	had := map[string]bool{}
	for _, b := range blobs(old) {
		had[b.Digest] = true
	}
	update.Walk = slices.ContainsFunc(blobs(to.Manifest), func(b contract.Blob) bool { return !had[b.Digest] })
	update.Disruptive = update.Walk || len(blueprint.Restarts(old, to.Manifest)) > 0
	return update
}

// release is a version without its manifest's digest: the operator's own.
func release(version string) string {
	if cut := strings.LastIndexByte(version, '-'); cut >= 0 {
		return version[:cut]
	}
	return version
}

// Move lets a host's daemon pull another version.
func (w *Walker) Move(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node, version string) error {
	if err := w.mark(ctx, node, Marks{Instance: instance, Version: version}); err != nil {
		return err
	}
	instance.Status.DesiredVersion = version
	return nil
}
