package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// A daemon may start with a revision that it does not know completely. The daemon before it did not understand all of
// the manifest, or did not keep the confidential part in the state file, or the state file was lost. The revision is
// read again before it is tried.

// readLimit is how long a daemon waits to read such a revision. Meanwhile the daemon does nothing, and services run.
const readLimit = 5 * time.Minute

// incomplete reports whether this daemon does not know or understand all of the host's revision.
func (r *Reconciler) incomplete() bool {
	m := r.State.Manifest
	if r.Program.Replaces(m) {
		return false // another one will understand it
	}
	_, err := r.State.ParseConfidential()
	return r.State.Revision.Name == "" || r.State.Partial || m.Validate() != nil || err != nil
}

// isUnread reports whether the host's revision is incomplete and has not held yet. Then no pass is made, because a pass
// would remove what the revision does not seem to name, such as containerd's rules. A revision that has held is kept as
// far as it is known.
func (r *Reconciler) isUnread() bool { return r.trial.unsure && !r.State.Verified }

// awaitsManifest reports whether there is nothing to do until the host's revision is read.
func (r *Reconciler) awaitsManifest(c *state.Revision) bool { return r.isUnread() && c == nil }

// understood completes the host's revision with what was read again. It returns false if that is another revision.
func (r *Reconciler) understood(ctx context.Context, c *state.Revision) bool {
	if c.Name != r.State.Revision.Name || c.Manifest.Digest() != r.State.Manifest.Digest() ||
		c.Manifest.Validate() != nil {
		return false
	}
	r.trial.unsure, r.revisions.last = false, nil
	r.State.Confidential = c.Confidential
	if err := r.State.Save(); err != nil {
		logr.FromContextOrDiscard(ctx).Info("the confidential part can't be written down", "detail", err.Error())
	}
	r.announce()
	return true
}

// giveUp waits for the host's revision to be read. If that takes too long and another revision held before, giveUp
// rolls back and returns true: a pass is due.
func (r *Reconciler) giveUp(ctx context.Context, node *unstructured.Unstructured, problem *contract.Problem) bool {
	if r.Clock.Since(r.trial.unsureSince) < readLimit || r.State.Before == nil {
		r.next = r.Clock.Now().Add(r.Intervals.QuickCheck)
		if problem != nil && r.Client != nil {
			r.publish(ctx, node, apply.Report{Failed: []*contract.Problem{problem}})
		}
		return false
	}
	if problem == nil {
		problem = contract.NewProblem(contract.ReasonManifestMissing, "the revision could not be read within %s",
			readLimit)
	}
	r.fail(ctx, problem, true)
	r.machine.on(logr.FromContextOrDiscard(ctx), failed)
	return true
}
