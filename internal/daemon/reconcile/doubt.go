package reconcile

import (
	"cmp"
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// A daemon may start with a revision that it does not know completely. The daemon before it did not understand all of
// the manifest, or did not keep the confidential part in the state file. The revision is read again before it is tried.

// readLimit is how long a daemon waits to read such a revision. During the wait the daemon does nothing, and services
// run.
const readLimit = 5 * time.Minute

// incomplete reports whether this daemon does not know or understand all of the host's revision.
func (r *Reconciler) incomplete() bool {
	m := r.State.Manifest
	if r.Program.Replaces(m) {
		return false // the other daemon understands it
	}
	_, err := r.State.ParseConfidential()
	return r.State.Partial || m.Validate() != nil || err != nil
}

// isUnread reports whether the host's revision is incomplete and has not held yet. Then the daemon makes no pass,
// because a pass would remove items that the incomplete revision doesn't name, such as containerd's rules. If the
// revision has held, the daemon keeps the known part of it.
func (r *Reconciler) isUnread() bool { return r.trial.unsure && !r.State.Verified }

// awaitsManifest reports whether the daemon must wait until the host's revision is read.
func (r *Reconciler) awaitsManifest(c *state.Revision) bool { return r.isUnread() && c == nil }

// understood completes the host's revision with the part that was read again. It returns false if that is another
// revision.
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

// unreadable returns why the host's revision could not be read in time. It returns nil before readLimit, and if there
// is no previous revision for a rollback.
func (r *Reconciler) unreadable(problem *contract.Problem) *contract.Problem {
	if r.Clock.Since(r.trial.since) < readLimit || r.State.Before == nil {
		return nil
	}
	return cmp.Or(problem, contract.NewProblem(contract.ReasonManifestMissing,
		"the revision could not be read within %s", readLimit))
}
