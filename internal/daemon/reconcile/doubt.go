package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
)

// A daemon that was replaced may find a revision in the state file that the one before it could
// note only in part, since it did not understand all of it, and one whose state file was lost finds
// none. It is read again before it is tried.

// readLimit is how long a daemon waits to read such a manifest. Nothing is done meanwhile; the
// services run.
const readLimit = 5 * time.Minute

// incomplete says that the state's revision is not all understood by this daemon.
func (r *Reconciler) incomplete() bool {
	m := r.State.Manifest
	if r.program.replaces(m) {
		return false // another one will understand it
	}
	return r.State.Revision.Name == "" || r.State.Partial || m.Validate() != nil ||
		r.machine.phase == Applying && m.Confidential != "" && r.confidential == nil
}

// isUnread says that the host's revision has not held yet and is not all understood: no pass is made, since that
// would take away what the revision does not seem to name, such as containerd's rules. What has held is kept as it
// was noted.
func (r *Reconciler) isUnread() bool { return r.trial.unsure && !r.State.Verified }

// awaitsManifest says that there is nothing to do before the host's revision was read.
func (r *Reconciler) awaitsManifest(c *candidate) bool { return r.isUnread() && c == nil }

// understood says whether a revision that was read again is what the state has.
func (r *Reconciler) understood(ctx context.Context, c *candidate) bool {
	if c.Revision.Name != r.State.Revision.Name || c.Manifest.Digest() != r.State.Manifest.Digest() ||
		c.Manifest.Validate() != nil {
		return false
	}
	r.trial.unsure = false
	if c.confidential != nil && r.confidential == nil {
		r.confidential = c.confidential
		if err := r.revisions.sealed.Keep(ctx, c.Manifest.Confidential, c.data); err != nil {
			logr.FromContextOrDiscard(ctx).Info("the confidential part can't be sealed", "detail", err.Error())
		}
	}
	r.announce()
	return true
}

// giveUp waits for the host's revision to be read, and goes back when that takes too long and
// another held before: then it says so, and a pass is due.
func (r *Reconciler) giveUp(ctx context.Context, node *unstructured.Unstructured, problem *contract.Problem) bool {
	if r.Clock.Since(r.trial.unsureSince) < readLimit || r.State.Before == nil {
		r.next = r.Clock.Now().Add(r.Intervals.QuickCheck)
		if problem != nil && r.Client != nil {
			r.publish(ctx, node, apply.Report{Failed: []*contract.Problem{problem}})
		}
		return false
	}
	if problem == nil {
		problem = contract.NewProblem(contract.ReasonManifestMissing, "the manifest could not be read within %s",
			readLimit)
	}
	r.fail(ctx, problem, true)
	r.machine.on(logr.FromContextOrDiscard(ctx), failed)
	return true
}
