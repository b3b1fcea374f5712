package lifecycle

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
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
	// Updating and Rebooting say that the node has had its turn, and is on its way.
	Updating, Rebooting bool
}

// Update is what another version asks for.
type Update struct {
	Version string
	// From is the version that held last on the node, and that it goes back to when the other one
	// does not hold; empty when none was ever proven.
	From string
	// Payload says that it brings files that the host may lack, so they are fetched first. Restarts
	// says that services on which pods depend are started anew; Drains that pods must leave before.
	// Each waits for the rollout budget: also a daemon that takes over from another is tried on few
	// nodes first.
	Payload, Restarts, Drains bool
}

// Waits says whether it waits for the rollout budget.
func (u *Update) Waits() bool { return u.Payload || u.Restarts || u.Drains }

// Keep looks at a host that has joined, through its Node only, and puts our marks back where they
// are gone.
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
		told := Wait(0, problem.Reason, "%s", problem.Detail)
		return Care{Node: node, Outcome: told}, nil //nolint:nilerr // the outcome tells it
	}
	if status.PublicKeyHash == "" {
		// as an operator that kept it there only left it
		status.PublicKeyHash = node.Annotations[contract.PublicKeyHashAnnotation]
	}
	w.told(ctx, status, node)
	marks := Marks{Instance: instance, KeyHash: status.PublicKeyHash, Version: status.DesiredRevision}
	if u := status.Update; u != nil && Begun(u.Step) && (u.Step != v1alpha1.StepProving || status.Disruption == nil) {
		// who is to be drained first is told by that step only; who goes back takes the daemon's
		// status of before away in the same write; and who has lost its place must have it back
		// first
		marks.Version = ""
	}
	if err = w.mark(ctx, node, marks); err != nil {
		return Care{}, err
	}
	status.NodeUID = string(node.UID)
	status.Revision, status.KubeletVersion = node.Annotations[contract.RevisionAnnotation],
		node.Status.NodeInfo.KubeletVersion
	return w.care(ctx, instance, node)
}

// told finds out whether a node was told of the desired version already, by an operator that ended
// before it wrote that down.
func (w *Walker) told(ctx context.Context, status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) {
	version := node.Annotations[contract.DesiredRevisionAnnotation]
	if version == status.DesiredRevision || status.Update != nil {
		return
	}
	if desired, _, err := w.Desired.Current(ctx); err == nil && version == desired.Version &&
		!w.Compare(ctx, status.DesiredRevision, desired).Waits() {
		status.DesiredRevision = version
	}
}

// care decides what a node needs that is ours.
func (w *Walker) care(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) (Care, error) {
	status := &instance.Status
	care := Care{Node: node, Updating: updates(status), Rebooting: reboots(status)}
	desired, _, err := w.Desired.Current(ctx)
	switch {
	case err != nil || underWay(status): // nobody knows what is desired, or it is on its way
	case desired.Version != status.DesiredRevision:
		care.Update = w.Compare(ctx, status.DesiredRevision, desired)
		care.Update.From = cmp.Or(status.HeldRevision, status.DesiredRevision)
	default:
		status.Update = nil // another version was desired meanwhile, and is not any more
	}
	w.listen(status, node)
	silent, quiet := w.silent(status, node)
	// the way in brings the desired version, and that is the one that it was told
	if silent != nil && err == nil && care.Update == nil {
		care.Rejoin = silent
		return care, nil
	}
	ready, message := NodeReady(node)
	overdue, left := w.overdue(node)
	care.Outcome.After = quiet
	if overdue && !trusted(status) {
		care.Rejoin = contract.NewProblem(contract.ReasonNodeNotReady, "node %s has not been Ready for %s: %s",
			node.Name, rescueAfter, message)
		return care, nil
	}
	switch {
	case care.Update != nil:
		care.Outcome = Wait(0, contract.ReasonRevisionPending, "version %s is desired and waits for the rollout budget",
			desired.Version)
		if status.Disruption == nil && NodeReadyAt(node, status.DesiredRevision) {
			err = w.uncordon(ctx, node) // it serves until it has its turn, whatever was begun with it before
		} else {
			err = nil
		}
		return care, err
	case underWay(status):
		return care, nil
	case status.Revision != status.DesiredRevision:
		care.Outcome = Follows(node, status.DesiredRevision)
		care.Outcome.After = max(left, quiet)
		return care, nil
	case !ready:
		care.Outcome = Wait(left, contract.ReasonNodeNotReady, "node %s: %s", node.Name, message)
		return care, nil
	}
	if said(node) == "" {
		status.HeldRevision = status.Revision
	}
	return care, w.uncordon(ctx, node)
}

// underWay says that a node has had its turn: it is being emptied, switched, rebooted, or brought
// back.
func underWay(status *v1alpha1.WindowsInstanceStatus) bool {
	return updates(status) || reboots(status)
}

func updates(status *v1alpha1.WindowsInstanceStatus) bool {
	return status.Update != nil && (Begun(status.Update.Step) || has(status, v1alpha1.DisruptionUpdate))
}

func reboots(status *v1alpha1.WindowsInstanceStatus) bool {
	return status.Reboot != nil && (Begun(status.Reboot.Step) || has(status, v1alpha1.DisruptionReboot))
}

// Begun says that a node has had its turn, by its step.
func Begun(step v1alpha1.Step) bool {
	return step != v1alpha1.StepStaging && step != v1alpha1.StepWaiting
}

func has(status *v1alpha1.WindowsInstanceStatus, purpose v1alpha1.DisruptionPurpose) bool {
	return status.Disruption != nil && status.Disruption.Purpose == purpose
}

// trusted says that a node that is not Ready is on a way that has an end of its own. One that is
// brought back, or has nowhere to go back to, is not: if its daemon can't help it, SSH may.
func trusted(status *v1alpha1.WindowsInstanceStatus) bool {
	return reboots(status) || updates(status) && status.Update.From != "" &&
		status.Update.Step != v1alpha1.StepGoingBack
}

// Follows is how a node is whose daemon has been told of a version and has yet to bring it about.
func Follows(node *corev1.Node, version string) Outcome {
	return Wait(0, contract.ReasonRevisionPending, "node %s has version %q and should have %q%s", node.Name,
		node.Annotations[contract.RevisionAnnotation], version, said(node))
}

// rescueAfter is how long a node that has joined may be not Ready before its host is looked at over
// SSH: kubelet's certificate or the daemon's may have expired while it was off, or services may be
// gone. A boot with updates of Windows takes less.
const rescueAfter = 10 * time.Minute

// overdue says whether a node has not been Ready for too long, and otherwise how much time is left
// to it; none for a node that is Ready.
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

// Serving gives the host's Node while it is Ready at the version that it was last told to have,
// whatever is under way for the host; nil otherwise.
func (w *Walker) Serving(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, error) {
	status := &instance.Status
	if status.JoinedTime == nil || status.Phase == v1alpha1.PhaseRemoving {
		return nil, nil
	}
	node, err := w.node(ctx, status.NodeName)
	if err != nil || node == nil || Foreign(node, instance) != nil {
		return nil, err
	}
	told := node.Annotations[contract.DesiredRevisionAnnotation]
	if told == "" || told != status.DesiredRevision || !NodeReadyAt(node, told) {
		return nil, nil
	}
	return node, nil
}

// HelpsItself says whether a host that has joined needs nobody to walk into it: its node serves, or
// is Ready and has a daemon that gets by itself what it lacks. A daemon that is silent helps
// nobody.
func (w *Walker) HelpsItself(ctx context.Context, instance *v1alpha1.WindowsInstance) (bool, error) {
	if _, silent, err := w.Silent(ctx, instance); err != nil || silent != nil {
		return false, err
	}
	serving, err := w.Serving(ctx, instance)
	if err != nil || serving != nil {
		return serving != nil, err
	}
	if instance.Status.JoinedTime == nil || instance.Status.Phase == v1alpha1.PhaseRemoving {
		return false, nil
	}
	node, err := w.ours(ctx, instance)
	if err != nil || node == nil {
		return false, err
	}
	ready, _ := NodeReady(node)
	return ready && StagesItself(node), nil
}

// Compare says what it takes to come from a published version to the desired one. Whatever may be
// missing counts for a version whose manifest can't be read any more.
func (w *Walker) Compare(ctx context.Context, from string, to blueprint.Desired) *Update {
	update := &Update{Version: to.Version, Payload: true, Restarts: true, Drains: true}
	if change, known := w.changes.of(from, to.Version,
		func() (change, bool, bool) { return w.compare(ctx, from, to) }); known {
		update.Payload, update.Restarts, update.Drains = change.payload, change.restarts, change.drains
	}
	return update
}

// compare reads the manifest of the version that a node comes from. What one says that is not what
// its name stands for is not forGood: somebody will put it right.
func (w *Walker) compare(ctx context.Context, from string, to blueprint.Desired) (c change, known, forGood bool) {
	published := &corev1.ConfigMap{}
	if err := w.Client.Get(ctx, types.NamespacedName{Namespace: w.Namespace,
		Name: contract.ServicesConfigMapPrefix + from}, published); err != nil {
		return c, false, false
	}
	old, err := contract.ManifestFromConfigMap(published.Data)
	if err != nil {
		return c, false, false
	}
	had := map[string]bool{}
	for _, b := range blobs(old) {
		had[b.Digest] = true
	}
	c.payload = release(from) != release(to.Version) ||
		slices.ContainsFunc(blobs(to.Manifest), func(b contract.Blob) bool { return !had[b.Digest] })
	c.restarts, c.drains = len(blueprint.Restarts(old, to.Manifest)) > 0, blueprint.Drains(old, to.Manifest)
	return c, true, contract.IsRevisionOfData(from, published.Data)
}

// Skew says in words why a node's release and the desired one are too far apart; empty when they
// are not, or when nobody knows what is desired.
func (w *Walker) Skew(ctx context.Context, instance *v1alpha1.WindowsInstance) string {
	desired, _, err := w.Desired.Current(ctx)
	if err != nil {
		return ""
	}
	return policy.CheckSkew(release(desired.Version), release(instance.Status.Revision))
}

// release is a version without its manifest's digest: the operator's own.
func release(version string) string {
	if cut := strings.LastIndexByte(version, '-'); cut >= 0 {
		return version[:cut]
	}
	return version
}

// Move lets a host's daemon pull another version.
func (w *Walker) Move(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node,
	version string) error {
	if err := w.tell(ctx, node, Marks{Instance: instance, Version: version}); err != nil {
		return err
	}
	instance.Status.DesiredRevision = version
	w.listen(&instance.Status, node)
	return nil
}
